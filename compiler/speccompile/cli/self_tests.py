"""Have plans of an artifact tested on the GPUs of this machine, and marked if they pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from speccompile.cli.diagnosis import Engine
from speccompile.runtime.artifact import Artifact, open_artifact
from speccompile.runtime.errors import CompatibilityError, SpeccompileError
from speccompile.runtime.gpus import Found
from speccompile.runtime.marks import Subject, remove_mark, write_mark
from speccompile.runtime.placement import Placement, fitting_placements
from speccompile.runtime.proof.check import Progress
from speccompile.runtime.signatures import required_signature

__all__ = ["run_self_tests"]


def run_self_tests(root: Path, engines: Sequence[Engine], found: Found) -> list[Engine]:
    """The engines of the artifact in `root`, those for a GPU that can run here tested there.

    All files are hashed before. Raises ArtifactError for a damaged artifact.
    """
    if not any(engine.gpu and engine.runs for engine in engines):
        return list(engines)
    tested: list[Engine] = []
    with Console(stderr=True, highlight=False).status("hashing the artifact") as status:
        artifact = open_artifact(root, on_cpu=False, trusted=required_signature())
        for engine in engines:
            if engine.gpu is None or not engine.runs:
                tested.append(engine)
                continue
            name = engine.name

            def progress(doing: str, done: int, total: int, name: str = name) -> None:
                status.update(f"{name}: {doing}, {done} of {total}")

            placements = fitting_placements(artifact, name, found)
            tested.append(_test(engine, artifact, placements, progress))
    return tested


def _test(
    engine: Engine, artifact: Artifact, placements: Sequence[Placement], progress: Progress
) -> Engine:
    # Late: it is much that a doctor without plans to test has no need of.
    from speccompile.runtime.device_engines import open_on_gpu
    from speccompile.runtime.proof.gpu import self_test

    first = placements[0]
    subject = Subject.of(artifact.manifest, engine.name, first.gpu, first.driver)
    try:
        result = self_test(artifact, placements, open_plans=open_on_gpu, progress=progress)
    except CompatibilityError as error:
        return replace(engine, said=f"not run, as there is nothing to compare with: {error}")
    engine = replace(engine, figures=result.figures, verified=None)
    if result.refusal:
        remove_mark(subject)
        return replace(engine, failed=True, said=result.refusal)
    capacities = tuple(result.checks)
    count = sum(map(len, result.checks.values()))
    said = f"passed {count} checks, with plans of {' and '.join(map(str, capacities))} slots"
    date = datetime.now(UTC).isoformat(" ", "seconds")
    try:
        mark = write_mark(subject, capacities, date, result.figures)
    except SpeccompileError as error:
        return replace(engine, said=f"{said}, but cannot be marked as verified: {error}")
    return replace(engine, verified=mark.date, said=said)
