"""What the precisions of a model gain in speed and cost in quality, and which one to take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from speccompile.compiler.assemble import Candidate, choose
from speccompile.compiler.default_draft import LONGEST_DRAFT
from speccompile.runtime.costmodel import Costs, best_draft_length, predicted_speedup

__all__ = [
    "Comparison",
    "DraftRow",
    "TargetRow",
    "draft_rows",
    "target_rows",
]

_DEFAULT_LIMIT = 0.01


@dataclass(frozen=True)
class TargetRow:
    """The target in one precision, on its fastest engine for plain decoding, exact ones first.

    `cost_ms` are of steps as they are served, padding included. `speedup` is that of plain decoding
    over the first precision compared. `min_rows` is as in `EngineInfo`: 0 is never exact, so not
    lossless under speculation. `chosen` marks the recipe's own precision.
    """

    precision: str
    backend: str
    arithmetic: str
    min_rows: int
    bytes: int
    cost_ms: Costs
    speedup: float
    perplexity_increase: float
    kl_divergence: float
    top1_agreement: float
    chosen: bool


@dataclass(frozen=True)
class DraftRow:
    """The draft in one precision, on the engine that a build would pair with the target's.

    `acceptance` is the share of contexts of the evaluation text in which its first choice is that
    of the target in full precision, and `full_acceptance` that of the draft in full precision.
    `predicted_speedup` is over plain decoding at `draft_length`, the best one, if every position of
    a proposal were accepted that often; with length 0 no proposal pays.
    """

    precision: str
    backend: str
    arithmetic: str
    bytes: int
    cost_ms: Costs
    acceptance: float
    full_acceptance: float
    kl_divergence: float
    predicted_speedup: float
    draft_length: int
    chosen: bool


@dataclass(frozen=True)
class Comparison:
    """Rows in the order of the precisions; none of a role that was not asked for.

    `verified_by` is the target that drafts are judged beside, as ``backend precision``, or empty;
    `max_perplexity_increase` is the recipe's limit, None where it sets none.
    """

    recipe: str
    target: tuple[TargetRow, ...]
    draft: tuple[DraftRow, ...]
    verified_by: str
    max_perplexity_increase: float | None

    @property
    def limit(self) -> float:
        """The most that perplexity may grow for a precision to be recommended: 1 % by default."""
        limit = self.max_perplexity_increase
        return _DEFAULT_LIMIT if limit is None else limit

    @property
    def best_target(self) -> TargetRow | None:
        """The fastest with exact rows whose perplexity stays within the limit, if there is one."""
        allowed = [
            row for row in self.target if row.min_rows and row.perplexity_increase <= self.limit
        ]
        return max(allowed, key=lambda row: row.speedup, default=None)

    @property
    def best_draft(self) -> DraftRow | None:
        """The one with the highest predicted speed-up, if any pays."""
        paying = [row for row in self.draft if row.draft_length]
        return max(paying, key=lambda row: row.predicted_speedup, default=None)


def target_rows(
    measured: Mapping[str, Sequence[Candidate]], chosen: str | None
) -> tuple[TargetRow, ...]:
    """A row for every precision, of its engines; `chosen` is the recipe's precision."""
    best = {
        precision: min(among, key=lambda entry: (entry.engine.min_rows == 0, _served(entry)[1]))
        for precision, among in measured.items()
    }
    plain_ms = [_served(candidate)[1] for candidate in best.values()]
    return tuple(
        TargetRow(
            precision=precision,
            backend=candidate.engine.backend,
            arithmetic=candidate.engine.arithmetic,
            min_rows=candidate.engine.min_rows,
            bytes=candidate.bytes,
            cost_ms=_served(candidate),
            speedup=plain_ms[0] / _served(candidate)[1],
            perplexity_increase=candidate.quality.perplexity_increase,
            kl_divergence=candidate.quality.kl_divergence,
            top1_agreement=candidate.quality.top1_agreement,
            chosen=precision == chosen,
        )
        for precision, candidate in best.items()
    )


def draft_rows(
    measured: Mapping[str, Sequence[Candidate]], target: Candidate, chosen: str | None
) -> tuple[DraftRow, ...]:
    """A row for every precision, of its engines; `chosen` is the recipe's precision."""
    pairs = {
        precision: choose({"target": [target], "draft": among})["draft"]
        for precision, among in measured.items()
    }
    return tuple(
        _draft_row(precision, draft, target, chosen=precision == chosen)
        for precision, draft in pairs.items()
    )


def _draft_row(precision: str, draft: Candidate, target: Candidate, *, chosen: bool) -> DraftRow:
    quality, shares_cache = draft.quality, draft.engine.shares_cache
    acceptance, full = quality.acceptance, quality.reference_acceptance
    if acceptance is None or full is None:  # its target is itself, in full precision
        acceptance, full = quality.top1_agreement, 1.0
    costs, verifying = draft.cost_ms, _served(target)
    length = best_draft_length(
        [acceptance], costs, verifying, LONGEST_DRAFT, shares_cache=shares_cache
    )
    speedup = predicted_speedup(length, [acceptance], costs, verifying, shares_cache=shares_cache)
    return DraftRow(
        precision=precision,
        backend=draft.engine.backend,
        arithmetic=draft.engine.arithmetic,
        bytes=draft.bytes,
        cost_ms=costs,
        acceptance=acceptance,
        full_acceptance=full,
        kl_divergence=quality.kl_divergence,
        predicted_speedup=speedup,
        draft_length=length,
        chosen=chosen,
    )


def _served(candidate: Candidate) -> Costs:
    """Steps below `min_rows` are padded to it: they are one step, which has one cost."""
    costs, fewest = candidate.cost_ms, candidate.engine.min_rows
    return {rows: costs[max(rows, fewest)] for rows in costs}
