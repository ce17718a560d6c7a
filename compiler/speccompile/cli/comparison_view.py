"""A comparison of precisions in words and figures, as the terminal and the page show it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from speccompile.compiler.comparison import Comparison, DraftRow, TargetRow

__all__ = ["Column", "View", "views"]


@dataclass(frozen=True)
class Column:
    """One precision: its `figures` by name; `chosen` is the recipe's own."""

    precision: str
    chosen: bool
    kl_divergence: float
    speedup: float
    figures: Mapping[str, str]


@dataclass(frozen=True)
class View:
    """One role: all columns have the same figures, `notes` say what they are. `speedup` names the
    one that columns have, and `recommended` is a sentence, of a precision where one is `found`."""

    role: str
    columns: tuple[Column, ...]
    speedup: str
    notes: str
    found: bool
    recommended: str


def views(comparison: Comparison) -> list[View]:
    """The roles that were compared, the target first."""
    found: list[View] = []
    if comparison.target:
        found.append(_target(comparison))
    if comparison.draft:
        found.append(_draft(comparison))
    return found


def _target(comparison: Comparison) -> View:
    over = comparison.target[0].precision
    best, stated = comparison.best_target, "validate.max_perplexity_increase"
    if comparison.max_perplexity_increase is None:
        stated = "the default limit"
    limit = f"at most {100 * comparison.limit:g} % more perplexity ({stated})"
    return View(
        role="target",
        columns=tuple(map(_target_column, comparison.target)),
        speedup=f"speed-up of plain decoding, over {over}",
        notes=(
            f"Speed-up is that of plain decoding, over {over}. Quality is against full precision: "
            "change of perplexity, KL divergence in nats, how often the first choice is the same. "
            "A row is exact where its bits do not depend on the rows computed with it: never is "
            "not lossless under speculation."
        ),
        found=best is not None,
        recommended=(
            f"Recommended: {best.precision}, the fastest with exact rows and {limit}."
            if best
            else f"Recommended: none. No precision has exact rows and {limit}."
        ),
    )


def _target_column(row: TargetRow) -> Column:
    figures = {
        "engine": row.backend,
        "arithmetic": row.arithmetic,
        "MB": _megabytes(row.bytes),
        "ms, 1 row": f"{row.cost_ms[1]:.2f}",
        "ms, 5 rows": f"{row.cost_ms[5]:.2f}",
        "speed-up": f"{row.speedup:.2f}x",
        "perplexity": _change(row.perplexity_increase, 2),
        "KL divergence": _nats(row.kl_divergence),
        "same first choice": f"{row.top1_agreement:.1%}",
        "rows exact": f"from {row.min_rows}" if row.min_rows else "never",
    }
    return Column(row.precision, row.chosen, row.kl_divergence, row.speedup, figures)


def _draft(comparison: Comparison) -> View:
    best = comparison.best_draft
    return View(
        role="draft",
        columns=tuple(map(_draft_column, comparison.draft)),
        speedup="predicted speed-up, over plain decoding",
        notes=(
            "Acceptance is how often the first choice is that of the target in full precision, "
            "after the text as it stands; unquantized, of the draft in full precision. The "
            "speed-up is predicted over plain decoding, as if every position of a proposal were "
            f"accepted that often, for the target as {comparison.verified_by}."
        ),
        found=best is not None,
        recommended=(
            f"Recommended: {best.precision}, predicted {best.predicted_speedup:.2f}x at draft "
            f"length {best.draft_length}."
            if best
            else "Recommended: none. Plain decoding is predicted to be the fastest."
        ),
    )


def _draft_column(row: DraftRow) -> Column:
    figures = {
        "engine": row.backend,
        "arithmetic": row.arithmetic,
        "MB": _megabytes(row.bytes),
        "ms, 1 row": f"{row.cost_ms[1]:.2f}",
        "acceptance": f"{row.acceptance:.1%}",
        "unquantized": f"{row.full_acceptance:.1%}",
        "difference": _change(row.acceptance - row.full_acceptance, 1),
        "KL divergence": _nats(row.kl_divergence),
        "predicted speed-up": f"{row.predicted_speedup:.2f}x",
        "best draft length": str(row.draft_length),
    }
    return Column(row.precision, row.chosen, row.kl_divergence, row.predicted_speedup, figures)


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f}" if size < 1e8 else f"{size / 1e6:.0f}"


def _change(share: float, digits: int) -> str:
    """With its sign, but no minus zero."""
    return f"{round(share, digits + 2) + 0.0:+.{digits}%}"


def _nats(divergence: float) -> str:
    if divergence <= 0:  # by rounding
        return "0"
    return f"{divergence:.1e}" if divergence < 1e-3 else f"{divergence:.4f}"
