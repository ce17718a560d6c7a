"""Where an artifact runs: on the CPU, or by one of its folders of plans on one GPU."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from speccompile.runtime.artifact import Artifact
from speccompile.runtime.errors import CompatibilityError, RequestError
from speccompile.runtime.gpus import (
    Driver,
    Found,
    Gpu,
    PlanPair,
    best_gpu,
    find_gpus,
    gpu_needs,
    memory_needs,
    plan_pairs,
)
from speccompile.runtime.host import Need
from speccompile.runtime.manifest import GpuEngines
from speccompile.runtime.marks import Subject, any_mark, find_mark

__all__ = ["AUTO", "CPU", "Placement", "choose_placement", "fitting_placements"]

AUTO, CPU = "auto", "cpu"


@dataclass(frozen=True)
class Placement:
    """The plans of one `folder` and capacity, on one GPU."""

    folder: str
    engines: GpuEngines
    pair: PlanPair
    gpu: Gpu
    driver: Driver | None


def choose_placement(artifact: Artifact, on: str, context: int) -> Placement | None:
    """Where to run sequences of up to `context` tokens; None for the CPU.

    `on` is "cpu", a folder, or "auto": the first folder by name that has what it needs and is
    marked as verified on this very GPU, with the plans that are wanted, else the CPU. The plans are
    those of the smallest capacity that is enough. No GPU is looked for unless it may be used.

    Raises RequestError for a folder that is not there or has no plans so large, CompatibilityError
    for one that lacks something here.
    """
    gpus = artifact.gpus
    if on == CPU:
        return None
    if on == AUTO:
        return _verified(artifact, context) if gpus and any_mark(artifact.manifest) else None
    if on in artifact.absent:
        raise RequestError(
            f"{artifact.root}: {on} was left out when it was pulled; pull all of it, or choose cpu"
        )
    if on not in gpus:
        folders = ", ".join(["auto", *sorted(gpus), "cpu"])
        raise RequestError(f"{artifact.root} has no engines {on!r}; choose one of {folders}")
    pair = _smallest(gpus[on], context)
    if pair is None:
        raise RequestError(
            f"{artifact.root}: no plan of {on} has room for {context} tokens; ask for a smaller "
            "context, or choose cpu"
        )
    return _place(artifact, on, pair, find_gpus())


def fitting_placements(artifact: Artifact, folder: str, found: Found) -> list[Placement]:
    """The plans of a folder that have all they need, by capacity.

    Raises CompatibilityError where none do.
    """
    engines = artifact.manifest.gpus[folder]
    pairs = plan_pairs(engines)
    fitting = [pair for pair in pairs if not _lacks(artifact, engines, pair, found)]
    return [_place(artifact, folder, pair, found) for pair in fitting or pairs[:1]]


def _verified(artifact: Artifact, context: int) -> Placement | None:
    found = find_gpus()
    for folder, engines in sorted(artifact.gpus.items()):
        pair, gpu = _smallest(engines, context), best_gpu(engines, found)
        if pair is None or gpu is None or _lacks(artifact, engines, pair, found):
            continue
        mark = find_mark(Subject.of(artifact.manifest, folder, gpu, found.driver))
        if mark and pair.capacity in mark.capacities:
            return Placement(folder, engines, pair, gpu, found.driver)
    return None


def _place(artifact: Artifact, folder: str, pair: PlanPair, found: Found) -> Placement:
    engines = artifact.manifest.gpus[folder]
    gpu, lacks = best_gpu(engines, found), _lacks(artifact, engines, pair, found)
    if gpu is None or lacks:
        raise CompatibilityError(_refusal(artifact.root, folder, lacks, found.reason))
    return Placement(folder, engines, pair, gpu, found.driver)


def _smallest(engines: GpuEngines, context: int) -> PlanPair | None:
    return next((pair for pair in plan_pairs(engines) if pair.capacity >= context), None)


def _lacks(artifact: Artifact, engines: GpuEngines, pair: PlanPair, found: Found) -> list[Need]:
    """What the plans need and do not find here."""
    gpu = best_gpu(engines, found)
    memory = memory_needs(engines, artifact.manifest.files, gpu)[pair.capacity]
    needs = [*gpu_needs(engines, gpu, found.driver), *([memory] if gpu else [])]
    return [need for need in needs if not need.met]


def _refusal(root: Path, folder: str, lacks: Iterable[Need], reason: str | None) -> str:
    """`reason` is why no GPU, or not every one, is found."""
    needed: list[str] = []
    for need in lacks:
        because = f" ({reason})" if reason and need.what == "GPU" else ""
        needed.append(f"it needs {need.what} {need.need}, here is {need.have}{because}")
    return (
        f"{root}: {folder} cannot run here: {'; '.join(needed)}. Choose cpu, or build it for here"
    )
