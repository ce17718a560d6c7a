"""From a recipe to a published artifact."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import Any

from speccompile.compiler.assemble import (
    REPORTS_FOLDER,
    Candidate,
    assemble,
    candidates,
    choose,
    write_manifest,
    write_measurements,
)
from speccompile.compiler.cache import StageCache, cache_limit
from speccompile.compiler.default_draft import default_draft
from speccompile.compiler.dump import dump_graphs
from speccompile.compiler.execute import Observer, StageResult, run_stages
from speccompile.compiler.pipeline import PROBED_ROWS, plan
from speccompile.compiler.recipe import Recipe
from speccompile.compiler.report.document import document
from speccompile.compiler.report.files import write_reports
from speccompile.compiler.report.provenance import provenance, write_provenance
from speccompile.compiler.report.sbom import SBOM_FILE, sbom
from speccompile.compiler.stage import Stage
from speccompile.compiler.stages.validate import VALIDATE_FILE
from speccompile.runtime.costmodel import Costs
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.manifest import SCHEMA_VERSION, EngineInfo, Manifest
from speccompile.runtime.measurements import Defaults, Measurements, unmeasured
from speccompile.runtime.publish import lock, publish, recover

__all__ = ["Built", "build"]


@dataclass(frozen=True)
class Built:
    """A finished build."""

    path: Path
    manifest: Manifest
    measurements: Measurements
    report: Mapping[str, Any]


def build(
    recipe: Recipe,
    destination: Path,
    *,
    cache: Path,
    observer: Observer,
    graphs: Path | None = None,
    command: Sequence[str] = (),
) -> Built:
    """Build `recipe` into the folder `destination`, which is replaced only by a whole artifact.

    Finished stages are kept in `cache`: a build that was killed goes on where it stopped. The
    folder `graphs` gets the graphs before, between and after the lowering passes: `dump_graphs`.
    `command` is what was called, without paths, for the provenance.
    Raises SpeccompileError where a source, an engine or a gate of the recipe fails.
    """
    start, started = time.perf_counter(), datetime.now(UTC)
    destination = destination.absolute()
    stages = StageCache(cache, cache_limit())
    with lock(destination), stages:
        recover(destination)
        results = run_stages(plan(recipe), stages, observer)
        if graphs is not None:
            _dump(recipe, results, graphs)
        measured = candidates(recipe, results)
        chosen = choose(measured)
        _check_quality(recipe, chosen["target"])
        with _staging(destination) as staging:
            manifest = write_manifest(staging, assemble(staging, recipe, results, chosen))
            write_measurements(staging, manifest, unmeasured(manifest))
            validated = _validate(recipe, staging, manifest, stages, observer, results)
            measurements = _measurements(recipe, manifest, validated)
            report = document(
                recipe,
                results,
                manifest,
                measurements,
                measured=measured,
                chosen=chosen,
                validation=validated,
                seconds=time.perf_counter() - start,
            )
            write_reports(staging / REPORTS_FOLDER, report)
            _write_origin(staging / REPORTS_FOLDER, manifest, report, command, started)
            measurements = write_measurements(staging, manifest, measurements)
            publish(staging, destination)
    return Built(destination, manifest, measurements, report)


def _write_origin(
    folder: Path,
    manifest: Manifest,
    report: Mapping[str, Any],
    command: Sequence[str],
    started: datetime,
) -> None:
    """Of what the artifact is made, and how: no part of its identity, as times are in it."""
    (folder / SBOM_FILE).write_text(sbom(manifest), encoding="utf-8")
    finished = datetime.now(UTC)
    statement = provenance(
        *(manifest, report["versions"], folder),
        command=command,
        started=started,
        finished=finished,
    )
    write_provenance(folder, statement)


def _dump(recipe: Recipe, results: Mapping[str, StageResult], folder: Path) -> None:
    try:
        dump_graphs(recipe, results, folder)
    except OSError as error:
        raise SpeccompileError(
            f"{folder}: cannot be written: {error.strerror or error}; "
            "choose another folder for the graphs"
        ) from error


@contextmanager
def _staging(destination: Path) -> Generator[Path]:
    """An empty folder beside the destination, gone again unless it was published."""
    staging = destination.with_name(f".{destination.name}.staging")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    try:
        yield staging
    except OSError as error:
        raise SpeccompileError(
            f"{destination}: cannot be written: {error.strerror or error}; "
            "what was there before is untouched; make room, or choose another output"
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _validate(
    recipe: Recipe,
    staging: Path,
    manifest: Manifest,
    cache: StageCache,
    observer: Observer,
    results: dict[str, StageResult],
) -> dict[str, Any]:
    stage = Stage(
        "validate",
        "speccompile.compiler.stages.validate:run",
        settings={
            "artifact": str(staging),
            "manifest": manifest.identity,
            "prompts": _prompts(recipe),
            "tokens": recipe.validation.tokens,
            "threads": recipe.engine.threads,
            "rows": list(PROBED_ROWS),
        },
    )
    results |= run_stages([stage], cache, observer)
    path = results[stage.name].folder / VALIDATE_FILE
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def _prompts(recipe: Recipe) -> list[str]:
    if recipe.validation.prompts:
        text = recipe.validation.prompts.read_text(encoding="utf-8")
    else:
        text = files("speccompile.compiler").joinpath("prompts.txt").read_text(encoding="utf-8")
    return [line.replace("\\n", "\n") for line in text.splitlines() if line.strip()]


def _measurements(recipe: Recipe, manifest: Manifest, validated: Mapping[str, Any]) -> Measurements:
    """What validation showed, and what follows from it; a failed gate fails the build."""
    if not validated["lossless"]:
        draft, prompts = next(iter(validated["differing_prompts"].items()))
        raise SpeccompileError(
            f"{recipe.name}: with the draft {draft}, output differs from plain decoding on "
            f"{len(prompts)} prompts, first on {prompts[0]!r:.60}; choose another engine in "
            "engine.cpu"
        )
    acceptance: tuple[float, ...] = tuple(validated["acceptance"])
    experts = {name: tuple(found["acceptance"]) for name, found in validated["experts"].items()}
    if recipe.draft:
        for name, measured in {"the draft": acceptance, **experts}.items():
            _check_acceptance(recipe, name, measured)
    costs = {
        role: _costs(manifest.engines[role], by_rows)
        for role, by_rows in validated["cost_ms"].items()
    }
    return Measurements(
        schema=SCHEMA_VERSION,
        manifest=manifest.identity,
        cost_ms=costs,
        acceptance=acceptance,
        lossless=True,
        defaults=_defaults(recipe, manifest, costs, {"draft": acceptance, **experts}),
        files={},
        experts=experts,
    )


def _check_acceptance(recipe: Recipe, draft: str, acceptance: Sequence[float]) -> None:
    first = (acceptance or (0.0,))[0]
    if first < recipe.validation.min_acceptance:
        raise SpeccompileError(
            f"{recipe.name}: {draft}'s first proposal is accepted with probability {first:.3f}, "
            f"below validate.min_acceptance = {recipe.validation.min_acceptance}; choose a closer "
            "draft or a finer precision"
        )


def _check_quality(recipe: Recipe, target: Candidate) -> None:
    limit, increase = recipe.validation.max_perplexity_increase, target.quality.perplexity_increase
    if limit is not None and not increase <= limit:
        raise SpeccompileError(
            f"{recipe.name}: perplexity grows by {increase:.2%} over full precision, above "
            f"validate.max_perplexity_increase = {limit:g}; choose a finer target.precision"
        )


def _costs(engine: EngineInfo, by_rows: Mapping[str, float]) -> dict[int, float]:
    """Steps below `min_rows` are padded to it: they are one step, which has one cost."""
    return {int(rows): by_rows[str(max(int(rows), engine.min_rows))] for rows in by_rows}


def _defaults(
    recipe: Recipe,
    manifest: Manifest,
    costs: Mapping[str, Costs],
    acceptance: Mapping[str, Sequence[float]],
) -> Defaults:
    if recipe.draft is None:
        return Defaults("ngram", 4)
    lengths = {
        name: table.length if isinstance(table.length, int) else None
        for name, table in recipe.drafts.items()
    }
    return default_draft(manifest, costs, acceptance, lengths)
