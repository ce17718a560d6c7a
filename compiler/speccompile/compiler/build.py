"""From a recipe to a published artifact."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from speccompile.compiler.assemble import (
    BUILD_REPORT_FILE,
    Candidate,
    assemble,
    candidates,
    choose,
    write_manifest,
)
from speccompile.compiler.execute import Observer, StageResult, peak_memory_bytes, run_stages
from speccompile.compiler.pipeline import PROBED_ROWS, Stage, plan
from speccompile.compiler.publish import lock, publish, recover
from speccompile.compiler.recipe import Recipe
from speccompile.compiler.stages.validate import LONGEST_DRAFT, VALIDATE_FILE
from speccompile.runtime.costmodel import best_draft_length, predicted_speedup
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.host import describe
from speccompile.runtime.manifest import Defaults, Manifest

__all__ = ["Built", "build", "default_cache"]


@dataclass(frozen=True)
class Built:
    """A finished build."""

    path: Path
    manifest: Manifest
    report: Mapping[str, Any]


def default_cache() -> Path:
    """Where downloads and stage results are kept: $SPECCOMPILE_CACHE, else the user's cache."""
    if chosen := os.environ.get("SPECCOMPILE_CACHE"):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "speccompile"


def build(recipe: Recipe, destination: Path, *, cache: Path, observer: Observer) -> Built:
    """Build `recipe` into the folder `destination`, which is replaced only by a whole artifact.

    Finished stages are kept in `cache`: a build that was killed goes on where it stopped.
    Raises SpeccompileError where a source, an engine or a gate of the recipe fails.
    """
    start = time.perf_counter()
    destination = destination.absolute()
    destination.parent.mkdir(parents=True, exist_ok=True)
    with lock(destination):
        recover(destination)
        results = run_stages(plan(recipe), cache, observer)
        measured = candidates(recipe, results)
        chosen = choose(measured)
        with _staging(destination) as staging:
            manifest = write_manifest(staging, assemble(staging, recipe, results, chosen))
            validated = _validate(recipe, staging, manifest, cache, observer, results)
            manifest = _with_claims(recipe, manifest, validated)
            report = {
                "seconds": round(time.perf_counter() - start, 2),
                "peak_memory_bytes": peak_memory_bytes(),
                "host": asdict(describe()),
                "stages": [_stage_entry(result) for result in results.values()],
                "candidates": _candidate_entries(measured, chosen),
                "validation": validated,
                "predicted_speedup": _predictions(manifest),
            }
            path = staging / BUILD_REPORT_FILE
            path.parent.mkdir()
            path.write_text(json.dumps(report, indent=1, sort_keys=True), encoding="utf-8")
            manifest = write_manifest(staging, manifest)
            publish(staging, destination)
    return Built(destination, manifest, report)


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
            "what was there before is untouched"
        ) from error
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _validate(
    recipe: Recipe,
    staging: Path,
    manifest: Manifest,
    cache: Path,
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


def _with_claims(recipe: Recipe, manifest: Manifest, validated: Mapping[str, Any]) -> Manifest:
    """The manifest with what validation showed; a failed gate fails the build."""
    if not validated["lossless"]:
        raise SpeccompileError(
            f"{recipe.name}: speculative output differs from plain decoding on "
            f"{len(validated['differing_prompts'])} prompts, first on "
            f"{validated['differing_prompts'][0]!r:.60}; choose another engine in engine.cpu"
        )
    acceptance: tuple[float, ...] = tuple(validated["acceptance"])
    if recipe.draft and (acceptance or (0.0,))[0] < recipe.validation.min_acceptance:
        raise SpeccompileError(
            f"{recipe.name}: the draft's first proposal is accepted with probability "
            f"{(acceptance or (0.0,))[0]:.3f}, below validate.min_acceptance = "
            f"{recipe.validation.min_acceptance}; choose a closer draft or a finer precision"
        )
    engines = {
        role: replace(engine, cost_ms={int(n): ms for n, ms in validated["cost_ms"][role].items()})
        for role, engine in manifest.engines.items()
    }
    manifest = replace(manifest, engines=engines, acceptance=acceptance, lossless=True)
    if recipe.draft is None:
        return manifest
    length = recipe.draft.length
    if length == "auto":
        length = best_draft_length(acceptance, engines["draft"], engines["target"], LONGEST_DRAFT)
    # A draft that does not pay is kept in the artifact, but not used unless asked for.
    return replace(manifest, defaults=Defaults("model" if length else "none", length))


def _predictions(manifest: Manifest) -> dict[str, float]:
    if "draft" not in manifest.engines:
        return {}
    draft, target = manifest.engines["draft"], manifest.engines["target"]
    return {
        str(length): round(predicted_speedup(length, manifest.acceptance, draft, target), 3)
        for length in range(LONGEST_DRAFT + 1)
    }


def _stage_entry(result: StageResult) -> dict[str, object]:
    return {"name": result.name, "seconds": round(result.seconds, 2), "cached": result.cached}


def _candidate_entries(
    measured: Mapping[str, list[Candidate]], chosen: Mapping[str, Candidate]
) -> list[dict[str, object]]:
    return [
        {
            "role": role,
            "backend": entry.engine.backend,
            "chosen": entry is chosen[role],
            "cost_ms": {str(rows): ms for rows, ms in entry.engine.cost_ms.items()},
            "min_rows": entry.engine.min_rows,
            "accuracy": dict(entry.accuracy),
        }
        for role, among in measured.items()
        for entry in among
    ]
