"""Measure the precisions of a recipe's models against each other.

Every precision goes through the stages of a build, up to the judged engine; one last stage times
all their engines (`stages/measure_against.py`). What does not depend on a precision, such as the
run in full precision that all are compared with, is done once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from speccompile.compiler.assemble import Candidate, choose
from speccompile.compiler.cache import StageCache, cache_limit
from speccompile.compiler.comparison import Comparison, draft_rows, target_rows
from speccompile.compiler.execute import Observer, StageResult, run_stages
from speccompile.compiler.recipe import DraftTable, Recipe
from speccompile.compiler.stages.compile import Compiled
from speccompile.compiler.stages.measure_against import read_relative_costs
from speccompile.compiler.stages.quality import read_quality
from speccompile.compiler.variants import (
    MEASURE_STAGE,
    ROLES,
    Role,
    Variant,
    plan_variants,
    variants,
)
from speccompile.runtime.costmodel import Costs

__all__ = ["compare"]


def compare(
    recipe: Recipe,
    precisions: Sequence[str] | None,
    roles: Sequence[Role],
    cache: Path,
    observer: Observer,
) -> Comparison:
    """Build, judge and time the models of `roles` in `precisions` (None: all they can have).

    Nothing is packed or published. A recipe without a draft is given one: the target's own weights.
    Drafts are judged beside the recipe's target, on its engine that makes the cheapest round with
    the best of them.
    Raises RequestError for a precision that does not exist or that no role can have, and
    SpeccompileError where a source or an engine fails.
    """
    whole = recipe
    if "draft" in roles and recipe.draft is None:
        whole = recipe.model_copy(update={"draft": DraftTable()})
    compared = variants(whole, roles, precisions)
    own = Variant(whole, "target", recipe.target.precision)
    # Drafts need the target that they draft for, whether or not it is compared.
    built = compared if "draft" not in roles or own in compared else [*compared, own]
    stages, names = plan_variants(whole, built)
    with StageCache(cache, cache_limit()) as stage_cache:
        done = run_stages(stages, stage_cache, observer)
        costs = read_relative_costs(done[MEASURE_STAGE].folder)
        results = {name: done[kept] for name, kept in names.items() if kept in done}
        measured = {variant: _candidates(variant, results, costs) for variant in built}
        targets, drafts = (
            {entry.precision: measured[entry] for entry in compared if entry.role == role}
            for role in ROLES
        )
        beside = _verifier(measured[own], drafts) if drafts else None
        return Comparison(
            recipe=recipe.name,
            target=target_rows(targets, recipe.target.precision),
            draft=draft_rows(drafts, beside, recipe.draft.precision if recipe.draft else None)
            if beside
            else (),
            verified_by=f"{beside.engine.backend} {beside.engine.precision}" if beside else "",
            max_perplexity_increase=recipe.validation.max_perplexity_increase,
        )


def _candidates(
    variant: Variant, results: Mapping[str, StageResult], costs: Mapping[str, Costs]
) -> list[Candidate]:
    found: list[Candidate] = []
    for engine in variant.engines.values():
        compiled = Compiled.read(results[f"compile {engine}"].folder)
        quality = read_quality(results[f"quality {engine}"].folder)
        folder = results[f"lower {engine}"].folder
        found.append(Candidate(compiled.engine, costs[engine], compiled.accuracy, quality, folder))
    return found


def _verifier(targets: Sequence[Candidate], drafts: Mapping[str, Sequence[Candidate]]) -> Candidate:
    every = [candidate for among in drafts.values() for candidate in among]
    return choose({"target": targets, "draft": every})["target"]
