"""Writing what was tuned into an artifact: all of it or nothing, and back again.

Only measurements and reports change, which are no part of the artifact's identity. The changed
artifact is put together beside the old one, of links to its files, and takes its place in one step.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from speccompile.compiler.file_entries import hash_tree
from speccompile.runtime.artifact import Artifact, open_artifact, read_manifest
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.files import MANIFEST_NAME, MEASUREMENTS_NAME, PARTIAL_NAME
from speccompile.runtime.measurements import Measurements, parse_measurements
from speccompile.runtime.publish import lock, publish, recover
from speccompile.runtime.tuned import PREDICTOR_FILE

__all__ = ["BUILT_FILE", "TUNE_FILE", "reset", "store"]

TUNE_FILE = "reports/tune.json"
BUILT_FILE = "reports/measurements-of-build.json"
"""The measurements as the build wrote them: what `reset` restores."""

_ROLES = {"reports": "report", PREDICTOR_FILE: "predictor"}


def store(artifact: Artifact, measurements: Measurements, reports: Mapping[str, bytes]) -> None:
    """Give the artifact these measurements, and `reports` by their paths; others stay.

    Raises SpeccompileError where it was built anew meanwhile, is being written to, or the disk
    refuses: it is then as it was.
    """
    built = {} if BUILT_FILE in artifact.files else {BUILT_FILE: artifact.measurements.to_bytes()}
    kept = artifact.files.keys() - reports.keys()
    _rewrite(artifact, measurements, kept, built | dict(reports))


def reset(path: Path) -> bool:
    """Restore the measurements of the build, and remove what tuning added; False where it is as
    it was built."""
    artifact = open_artifact(path, on_cpu=False)
    if BUILT_FILE not in artifact.files:
        return False
    where = artifact.path(BUILT_FILE)
    built = parse_measurements(where.read_bytes(), str(where), artifact.manifest)
    kept = artifact.files.keys() & artifact.manifest.files.keys()
    _rewrite(artifact, built, kept | built.files.keys(), {})
    return True


def _rewrite(
    artifact: Artifact, measurements: Measurements, kept: set[str], reports: Mapping[str, bytes]
) -> None:
    root, manifest = artifact.root.absolute(), artifact.manifest
    with lock(root), _explained(root):
        recover(root)
        if read_manifest(root).identity != manifest.identity:
            raise SpeccompileError(f"{root}: was built anew meanwhile; tune it again")
        with _staging(root) as staging:
            partial = [PARTIAL_NAME] if artifact.absent else []
            for path in (MANIFEST_NAME, *partial, *sorted(kept)):
                _link(root / path, staging / path)
            for path, content in reports.items():
                (staging / path).parent.mkdir(parents=True, exist_ok=True)
                (staging / path).write_bytes(content)
            files = hash_tree(staging, _ROLES, listed=manifest.files)
            record = replace(measurements, files=files).to_bytes()
            (staging / MEASUREMENTS_NAME).write_bytes(record)
            publish(staging, root)


def _link(source: Path, destination: Path) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, destination)
    except OSError:  # no such thing on this file system
        shutil.copy2(source, destination)


@contextmanager
def _staging(root: Path) -> Generator[Path]:
    """An empty folder beside the artifact, gone again unless it was published."""
    staging = root.with_name(f".{root.name}.staging")
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir()
    try:
        yield staging
    finally:
        shutil.rmtree(staging, ignore_errors=True)


@contextmanager
def _explained(root: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        raise SpeccompileError(
            f"{root}: cannot be written: {error.strerror or error}; it is as it was"
        ) from error
