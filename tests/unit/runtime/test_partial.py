"""Artifacts without plans that were left out: what is there is checked as ever."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from speccompile.compiler.tune.store import store
from speccompile.runtime.artifact import open_artifact, read_manifest
from speccompile.runtime.errors import ArtifactError, RequestError
from speccompile.runtime.measurements import Defaults
from speccompile.runtime.partial import Partial, partial_of
from speccompile.runtime.placement import choose_placement
from speccompile.runtime.runner import Runner
from tests.table_artifact import FOLDER, GPU_ENGINES, give_tables, write_artifact


@pytest.fixture
def whole(tmp_path: Path) -> Path:
    return write_artifact(tmp_path / "tiny")


@pytest.fixture
def root(whole: Path) -> Path:
    """Without its plans."""
    for path in GPU_ENGINES.paths:
        (whole / path).unlink()
    write(whole, partial_of(read_manifest(whole), [FOLDER]))
    return whole


def write(root: Path, partial: Partial) -> None:
    (root / "partial.json").write_bytes(partial.to_bytes())


def test_opened(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact = open_artifact(root)
    assert artifact.absent == {FOLDER}
    assert artifact.gpus == {}
    assert not artifact.files.keys() & GPU_ENGINES.paths
    assert artifact.manifest.gpus.keys() == {FOLDER}
    with pytest.raises(RequestError, match=f"{FOLDER} was left out when it was pulled; pull all"):
        choose_placement(artifact, FOLDER, 1)
    give_tables(monkeypatch)
    runner = Runner.open(root)
    assert runner.on == "cpu"
    runner.close()


def test_what_is_there_is_checked(root: Path) -> None:
    target = root / "engines/target.onnx"
    target.write_bytes(b"tarGet")
    with pytest.raises(ArtifactError, match=r"the content of 'engines/target\.onnx' changed"):
        open_artifact(root)
    target.unlink()
    with pytest.raises(ArtifactError, match=r"'engines/target\.onnx' is missing"):
        open_artifact(root)


def test_what_is_absent_must_be(root: Path) -> None:
    (root / GPU_ENGINES.kernels).write_bytes(GPU_ENGINES.kernels.encode())
    with pytest.raises(ArtifactError, match=r"kernels\.cubin' was added after the build"):
        open_artifact(root)


def test_nothing_may_be_missing_without_the_record(root: Path) -> None:
    (root / "partial.json").unlink()
    with pytest.raises(ArtifactError, match=f"'engines/{FOLDER}/.*' is missing"):
        open_artifact(root)


def test_tuned(root: Path) -> None:
    artifact = open_artifact(root)
    store(artifact, replace(artifact.measurements, defaults=Defaults("ngram", 2)), {})
    tuned = open_artifact(root)
    assert tuned.absent == {FOLDER}
    assert tuned.measurements.defaults.draft_length == 2


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"manifest": "0" * 64}, "belongs to another artifact"),
        ({"absent": ()}, "absent is empty"),
        ({"absent": ("cpu",)}, "absent names 'cpu', which are no plans"),
        ({"schema": 99}, "schema 99 is newer"),
    ],
)
def test_other_records(root: Path, change: dict[str, object], fault: str) -> None:
    write(root, replace(partial_of(read_manifest(root), [FOLDER]), **change))  # type: ignore[arg-type]
    with pytest.raises(ArtifactError, match=rf"partial\.json: {fault}.*; copy or pull"):
        open_artifact(root)


def test_changed_record(root: Path) -> None:
    document = json.loads((root / "partial.json").read_bytes())
    (root / "partial.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(ArtifactError, match=r"partial\.json: changed after it was written"):
        open_artifact(root)


def test_a_listed_file_is_no_record(whole: Path) -> None:
    manifest = read_manifest(whole)
    files = {**manifest.files, "partial.json": manifest.files["engines/target.onnx"]}
    (whole / "manifest.json").write_bytes(replace(manifest, files=files).to_bytes())
    with pytest.raises(ArtifactError, match=r"'partial\.json'\] is a record or signature"):
        open_artifact(whole)
