"""The part of an artifact that is for GPUs: plans and kernels, a folder for each architecture."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from speccompile.compiler.execute import StageResult
from speccompile.compiler.pipeline import sized
from speccompile.compiler.recipe import Recipe
from speccompile.compiler.stages.kernels import KERNELS_FILE
from speccompile.compiler.stages.lower_plan import read_plan
from speccompile.compiler.stages.plan import PLAN_FILE
from speccompile.compiler.tensorrt.installed import installed_library
from speccompile.plugins.cubins import abi
from speccompile.runtime.manifest import GpuEngines, PlanInfo

__all__ = ["assemble_gpus", "planned"]

_CUDA = "13.0"
"""The least version that the driver must have: both libraries and NVRTC are those of CUDA 13."""


def assemble_gpus(
    staging: Path, recipe: Recipe, results: Mapping[str, StageResult]
) -> dict[str, GpuEngines]:
    """Copy what the stages built under ``staging/engines``; returns what the manifest says of it,
    by folder."""
    if not recipe.engine.tensorrt:
        return {}
    library = installed_library(recipe.engine.tensorrt_library)
    found: dict[str, GpuEngines] = {}
    for architecture in recipe.engine.tensorrt:
        name = f"{library.name.replace('_', '-')}-{architecture}"
        folder = Path("engines") / name
        (staging / folder).mkdir(parents=True)
        kernels = folder / KERNELS_FILE
        shutil.copyfile(results[f"kernels {architecture}"].folder / KERNELS_FILE, staging / kernels)
        found[name] = GpuEngines(
            library=library.name,
            library_version=library.version,
            architecture=architecture,
            cuda=_CUDA,
            kernels=kernels.as_posix(),
            plugin=abi(),
            plans=tuple(_plans(staging, folder, recipe, results, architecture)),
        )
    return found


def planned(recipe: Recipe) -> list[tuple[str, int | None]]:
    """Role and capacity (None: the whole context) of each plan for one architecture, in order."""
    roles = ("target", "draft") if recipe.draft else ("target",)
    return [(role, capacity) for role in roles for capacity in (None, *recipe.engine.capacities)]


def _plans(
    staging: Path,
    folder: Path,
    recipe: Recipe,
    results: Mapping[str, StageResult],
    architecture: str,
) -> list[PlanInfo]:
    plans: list[PlanInfo] = []
    for role, capacity in planned(recipe):
        lowered = read_plan(results[sized(f"lower {role} tensorrt", capacity)].folder)
        built = results[sized(f"plan {role} {architecture}", capacity)].folder
        path = folder / f"{sized(role, capacity)}.plan"
        shutil.copyfile(built / PLAN_FILE, staging / path)
        plans.append(replace(lowered, plan=path.as_posix()))
    return plans
