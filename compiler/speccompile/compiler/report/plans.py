"""What a build's report says of its plans for GPUs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from speccompile.compiler.execute import StageResult
from speccompile.compiler.gpu_engines import planned
from speccompile.compiler.pipeline import sized
from speccompile.compiler.recipe import Recipe
from speccompile.compiler.stages.plan import read_report
from speccompile.compiler.stages.rehearse import read_accuracy
from speccompile.runtime.gpus import find_gpus
from speccompile.runtime.manifest import Manifest

__all__ = ["describe_plans"]


def describe_plans(
    recipe: Recipe, results: Mapping[str, StageResult], manifest: Manifest
) -> list[dict[str, Any]]:
    """One entry for each plan of the artifact, in the order of the manifest."""
    if not manifest.gpus:
        return []
    state = _not_run()
    plans: list[dict[str, Any]] = []
    for folder, engines in manifest.gpus.items():
        for (role, capacity), plan in zip(planned(recipe), engines.plans, strict=True):
            stage = sized(f"plan {role} {engines.architecture}", capacity)
            report = read_report(results[stage].folder)
            rehearsal = results.get(sized(f"rehearse {role} tensorrt", capacity))
            plans.append(
                {
                    "role": role,
                    "folder": folder,
                    "architecture": engines.architecture,
                    "capacity": plan.capacity,
                    "library": report["library"],
                    "version": report["version"],
                    "bytes": report["bytes"],
                    "seconds": report["seconds"],
                    "layers": report["network"]["layers"],
                    "int8_weight_bytes": report["network"]["int8_weight_bytes"],
                    "profiles": report["profiles"],
                    "plugin_calls": report["plugin_calls"],
                    "accuracy": read_accuracy(rehearsal.folder) if rehearsal else None,
                    "state": state,
                }
            )
    return plans


def _not_run() -> str:
    """Plans are built and their graphs rehearsed; a build runs none, and mostly cannot."""
    return "not run" if find_gpus().gpus else "not run: no GPU here"
