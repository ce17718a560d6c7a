"""What speculation is worth: measured costs and acceptance give the speed-up of a draft length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from speccompile.runtime.manifest import EngineInfo

__all__ = ["best_draft_length", "plain_step_ms", "predicted_speedup", "step_ms"]


def step_ms(engine: EngineInfo, rows: int) -> float:
    """Milliseconds of a step, padding included; between measured row counts, interpolated."""
    return _at(engine.cost_ms, max(rows, engine.min_rows))


def plain_step_ms(target: EngineInfo) -> float:
    """Milliseconds of a plain decoding step on this target."""
    return step_ms(target, 1)


def predicted_speedup(
    length: int, acceptance: Sequence[float], draft: EngineInfo, target: EngineInfo
) -> float:
    """Tokens per second with proposals of `length`, over those of plain decoding.

    ``acceptance[i]`` is the probability that position i stands given that those before it did, so a
    round emits 1 + sum of their running products. Beyond its end, the last entry goes on.
    """
    tokens, survival = 1.0, 1.0
    for index in range(length):
        survival *= acceptance[min(index, len(acceptance) - 1)] if acceptance else 0.0
        tokens += survival
    # A draft with a cache of its own first takes in what the target added: mostly two rows.
    first = step_ms(draft, 1 if draft.shares_cache else 2)
    drafting = first + (length - 1) * step_ms(draft, 1) if length else 0.0
    return tokens * plain_step_ms(target) / (drafting + step_ms(target, length + 1))


def best_draft_length(
    acceptance: Sequence[float], draft: EngineInfo, target: EngineInfo, longest: int
) -> int:
    """The length from 0 (do not speculate) to `longest` with the highest predicted speed-up."""
    return max(
        range(longest + 1), key=lambda length: predicted_speedup(length, acceptance, draft, target)
    )


def _at(cost_ms: Mapping[int, float], rows: int) -> float:
    if rows in cost_ms:
        return cost_ms[rows]
    below = max((count for count in cost_ms if count < rows), default=None)
    above = min((count for count in cost_ms if count > rows), default=None)
    if below is None or above is None:
        nearest = below or above
        if nearest is None:
            return 0.0
        return cost_ms[nearest] * rows / nearest
    share = (rows - below) / (above - below)
    return cost_ms[below] + share * (cost_ms[above] - cost_ms[below])
