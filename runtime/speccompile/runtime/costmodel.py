"""What speculation is worth: measured costs and acceptance give the speed-up of a draft length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = [
    "Costs",
    "best_draft_length",
    "plain_step_ms",
    "predicted_speedup",
    "round_ms",
    "step_ms",
]

Costs = Mapping[int, float]
"""Milliseconds of a step by its number of rows, as measured."""


def step_ms(costs: Costs, rows: int) -> float:
    """Milliseconds of a step; between measured row counts, interpolated; 0 if none is measured."""
    if rows in costs:
        return costs[rows]
    below = max((count for count in costs if count < rows), default=None)
    above = min((count for count in costs if count > rows), default=None)
    if below is None or above is None:
        nearest = below or above
        if nearest is None:
            return 0.0
        return costs[nearest] * rows / nearest
    share = (rows - below) / (above - below)
    return costs[below] + share * (costs[above] - costs[below])


def plain_step_ms(target: Costs) -> float:
    """Milliseconds of a plain decoding step on this target."""
    return step_ms(target, 1)


def round_ms(levels: int, nodes: int, draft: Costs, target: Costs, *, shares_cache: bool) -> float:
    """Milliseconds of a round that drafts so many `levels`, and verifies so many `nodes`."""
    # A draft with a cache of its own first takes in what the target added: mostly two rows.
    first = step_ms(draft, 1 if shares_cache else 2)
    drafting = first + (levels - 1) * step_ms(draft, 1) if levels else 0.0
    return drafting + step_ms(target, nodes + 1)


def predicted_speedup(
    length: int, acceptance: Sequence[float], draft: Costs, target: Costs, *, shares_cache: bool
) -> float:
    """Tokens per second with proposals of `length`, over those of plain decoding.

    ``acceptance[i]`` is the probability that position i stands given that those before it did, so a
    round emits 1 + sum of their running products. Beyond its end, the last entry goes on.
    """
    tokens, survival = 1.0, 1.0
    for index in range(length):
        survival *= acceptance[min(index, len(acceptance) - 1)] if acceptance else 0.0
        tokens += survival
    round_takes = round_ms(length, length, draft, target, shares_cache=shares_cache)
    return tokens * plain_step_ms(target) / round_takes


def best_draft_length(
    acceptance: Sequence[float], draft: Costs, target: Costs, longest: int, *, shares_cache: bool
) -> int:
    """The length from 0 (do not speculate) to `longest` with the highest predicted speed-up."""
    return max(
        range(longest + 1),
        key=lambda length: predicted_speedup(
            length, acceptance, draft, target, shares_cache=shares_cache
        ),
    )
