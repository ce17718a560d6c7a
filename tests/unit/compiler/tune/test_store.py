"""Whatever happens, the artifact is whole: as it was, or as it was to become."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from speccompile.compiler.tune import store as module
from speccompile.compiler.tune.store import BUILT_FILE, TUNE_FILE, reset, store
from speccompile.runtime.artifact import Artifact, open_artifact
from speccompile.runtime.control.predictor import Predictor
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.publish import lock
from speccompile.runtime.tuned import PREDICTOR_FILE, read_predictor
from tests.table_artifact import write_artifact

PREDICTOR = Predictor.of(np.linspace(-1.0, 1.0, 225))
REPORTS = {TUNE_FILE: b"{}\n", PREDICTOR_FILE: PREDICTOR.to_bytes()}


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return open_artifact(write_artifact(tmp_path / "tiny", {}))


def contents(root: Path) -> dict[str, bytes]:
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


def siblings(root: Path) -> set[str]:
    return {path.name for path in root.parent.iterdir()} - {f".{root.name}.lock"}


def test_it_is_another_measurement_of_the_same_artifact(artifact: Artifact) -> None:
    store(artifact, replace(artifact.measurements, acceptance=(0.5,)), REPORTS)
    tuned = open_artifact(artifact.root)
    assert tuned.manifest.identity == artifact.manifest.identity
    assert tuned.measurements.acceptance == (0.5,)
    assert read_predictor(tuned) == PREDICTOR
    assert tuned.files[PREDICTOR_FILE].role == "predictor"
    assert siblings(artifact.root) == {"tiny"}


def test_a_reset_restores_what_the_build_wrote(artifact: Artifact) -> None:
    built = contents(artifact.root)
    assert not reset(artifact.root)
    store(artifact, replace(artifact.measurements, acceptance=(0.5,)), REPORTS)
    tuned = open_artifact(artifact.root)
    store(tuned, replace(tuned.measurements, acceptance=(0.25,)), {TUNE_FILE: b"[]\n"})
    again = open_artifact(artifact.root)
    assert read_predictor(again) == PREDICTOR  # what is not replaced stays
    assert again.path(BUILT_FILE).read_bytes() == built["measurements.json"]
    assert reset(artifact.root)
    assert contents(artifact.root) == built


@pytest.mark.parametrize("failure", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_stopped_at_the_last_moment_nothing_changes(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch, failure: BaseException
) -> None:
    before = contents(artifact.root)

    def publish(staging: Path, destination: Path) -> None:
        assert open_artifact(staging)
        raise failure

    monkeypatch.setattr(module, "publish", publish)
    expected = SpeccompileError if isinstance(failure, OSError) else KeyboardInterrupt
    with pytest.raises(expected):
        store(artifact, artifact.measurements, REPORTS)
    assert contents(artifact.root) == before
    assert siblings(artifact.root) == {"tiny"}


def test_files_are_copied_where_there_are_no_links(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(source: Path, destination: Path) -> None:
        raise PermissionError

    monkeypatch.setattr("os.link", link)
    store(artifact, artifact.measurements, REPORTS)
    assert read_predictor(open_artifact(artifact.root)) == PREDICTOR


def test_another_build_is_not_overwritten(artifact: Artifact) -> None:
    with (
        lock(artifact.root),
        pytest.raises(SpeccompileError, match="another process is writing to it"),
    ):
        store(artifact, artifact.measurements, REPORTS)
    other = replace(artifact.manifest, name="other")
    (artifact.root / "manifest.json").write_bytes(other.to_bytes())
    before = contents(artifact.root)
    with pytest.raises(SpeccompileError, match="was built anew meanwhile"):
        store(artifact, artifact.measurements, REPORTS)
    assert contents(artifact.root) == before
