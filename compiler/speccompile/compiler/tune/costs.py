"""What steps cost on this host, and what follows from it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from speccompile.compiler.default_draft import default_draft
from speccompile.runtime.costmodel import Costs, step_ms
from speccompile.runtime.manifest import Manifest
from speccompile.runtime.measurements import Defaults
from speccompile.runtime.runner import Runner
from speccompile.runtime.timing import time_rows
from speccompile.runtime.trees.sequoia import Shape, best_shape

__all__ = ["best_tree", "defaults", "measure_costs"]

_ROWS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32)
_CONTEXT = 256


def measure_costs(runner: Runner) -> dict[str, dict[int, float]]:
    """Milliseconds of a step by role and rows, with all engines open and in turn.

    Steps of fewer rows than an engine's `min_rows` are padded to it: they get one cost.
    """
    engines = {role: runner.engine(role) for role in runner.roles}
    room = min(runner.context, *(engine.capacity for engine in engines.values()))
    rows = [count for count in _ROWS if 2 * count <= room]
    length = min(_CONTEXT, room - rows[-1])
    context = np.random.default_rng(0).integers(0, runner.manifest.model.vocab_size, length)
    measured = time_rows(engines, context.tolist(), rows)
    return {
        role: _padded(costs, runner.manifest.engines[role].min_rows)
        for role, costs in measured.items()
    }


def defaults(
    manifest: Manifest,
    costs: Mapping[str, Costs],
    acceptance: Mapping[str, Sequence[float]],
    before: Defaults,
    *,
    tuned: bool,
) -> Defaults:
    """As a build chooses them, but for a model that a predictor is `tuned` to: a length that the
    recipe fixes stays, and so do n-grams.

    `acceptance` is that of every draft, by the name of its engine.
    """
    if not manifest.drafts:
        return before
    return default_draft(manifest, costs, acceptance, _fixed_lengths(manifest), tuned=tuned)


def best_tree(
    profile: Sequence[Sequence[float]], target: Costs, draft: Costs, *, shares_cache: bool
) -> Shape:
    """The static tree of most tokens a second, as far as costs were measured.

    Without `draft` costs, drafting is free.
    """
    first, further = step_ms(draft, 1 if shares_cache else 2), step_ms(draft, 1)
    return best_shape(
        profile,
        target_ms=lambda rows: step_ms(target, rows),
        draft_ms=lambda levels: first + (levels - 1) * further if levels else 0.0,
        nodes=max(target) - 1,
    )


def _padded(costs: Costs, least: int) -> dict[int, float]:
    """The largest of the row counts that are padded stands for all of them."""
    return {
        rows: costs[max(count for count in costs if count <= max(rows, least))] for rows in costs
    }


def _fixed_lengths(manifest: Manifest) -> dict[str, int | None]:
    """By draft, where the recipe says one."""
    recipe: Any = manifest.provenance.get("recipe") or {}
    draft = recipe.get("draft") or {}
    written = {"draft": draft, **{table["name"]: table for table in draft.get("experts", ())}}
    lengths = {name: written.get(name, {}).get("length") for name in manifest.drafts}
    return {name: length if isinstance(length, int) else None for name, length in lengths.items()}
