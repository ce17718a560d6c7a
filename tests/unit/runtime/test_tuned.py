from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from speccompile.runtime.artifact import Artifact, open_artifact
from speccompile.runtime.control.predictor import Predictor
from speccompile.runtime.errors import ArtifactError
from speccompile.runtime.files import FileEntry
from speccompile.runtime.tuned import PREDICTOR_FILE, read_predictor
from tests.table_artifact import write_artifact


@pytest.fixture
def artifact(tmp_path: Path) -> Artifact:
    return open_artifact(write_artifact(tmp_path / "tiny", {}))


def listed(artifact: Artifact, content: bytes) -> Artifact:
    """The artifact with that file, its hash aside."""
    path = artifact.root / PREDICTOR_FILE
    path.parent.mkdir()
    path.write_bytes(content)
    files = {PREDICTOR_FILE: FileEntry("ab" * 32, len(content), "predictor")}
    return replace(artifact, measurements=replace(artifact.measurements, files=files))


def test_an_artifact_that_was_never_tuned_has_none(artifact: Artifact) -> None:
    assert read_predictor(artifact) is None


def test_a_file_that_no_record_has_is_not_read(artifact: Artifact) -> None:
    listed(artifact, b"whatever")
    assert read_predictor(artifact) is None


def test_it_is_what_was_stored(artifact: Artifact) -> None:
    predictor = Predictor.of(np.linspace(-1.0, 1.0, 225), (1.0, 2.0))
    assert read_predictor(listed(artifact, predictor.to_bytes())) == predictor


def test_another_file_is_refused_by_name(artifact: Artifact) -> None:
    with pytest.raises(ArtifactError, match=r"reports/predictor.json: not JSON"):
        read_predictor(listed(artifact, b"whatever"))
