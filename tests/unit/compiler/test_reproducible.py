"""Two builds compared: what differs first, and why that may be."""

from dataclasses import replace
from pathlib import Path

import pytest

from speccompile.compiler import reproducible
from speccompile.compiler.build import Built
from speccompile.compiler.execute import Observer
from speccompile.compiler.recipe import Recipe, load_recipe
from speccompile.compiler.reproducible import first_difference, verify_reproducible
from speccompile.runtime.artifact import open_artifact
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.files import FileEntry
from speccompile.runtime.manifest import Manifest
from tests.table_artifact import write_artifact


@pytest.fixture
def built(tmp_path: Path) -> Built:
    artifact = open_artifact(write_artifact(tmp_path / "out" / "tiny"), on_cpu=False)
    return Built(artifact.root, artifact.manifest, artifact.measurements, {})


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    path = tmp_path / "tiny.toml"
    path.write_text('name = "tiny"\ntarget.source = "hf:some/model"\n')
    return load_recipe(str(path))


def changed(manifest: Manifest, *paths: str) -> Manifest:
    other = {path: FileEntry("0" * 64, 1, "engine") for path in paths}
    return replace(manifest, files={**manifest.files, **other})


def test_the_first_file_in_order(built: Built) -> None:
    one = built.manifest
    assert first_difference(one, one) is None
    two = changed(one, "tokenizer/tokenizer.json", "engines/target.onnx")
    assert first_difference(one, two) == "engines/target.onnx"
    assert first_difference(one, changed(one, "engines/added")) == "engines/added"
    assert first_difference(changed(one, "engines/added"), one) == "engines/added"
    assert first_difference(one, replace(one, compiler_version="2")) == "manifest.json"


@pytest.fixture
def seconds(built: Built, monkeypatch: pytest.MonkeyPatch) -> list[Manifest]:
    """What the second build gives: the last of these, the first build's own to begin with."""
    manifests = [built.manifest]

    def again(recipe: Recipe, destination: Path, *, cache: Path, observer: Observer) -> Built:
        assert destination != built.path
        assert (cache / "downloads" / "weights").read_text() == "w"
        assert not (cache / "stages").exists()
        return replace(built, path=destination, manifest=manifests[-1])

    monkeypatch.setattr(reproducible, "build", again)
    return manifests


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    folder = tmp_path / "cache"
    (folder / "stages" / "old-result").mkdir(parents=True)
    (folder / "downloads").mkdir()
    (folder / "downloads" / "weights").write_text("w")
    return folder


@pytest.mark.usefixtures("seconds")
def test_the_second_build_has_the_downloads_alone(
    built: Built, recipe: Recipe, cache: Path
) -> None:
    verify_reproducible(recipe, built, cache=cache, observer=Observer())
    assert (cache / "downloads" / "weights").exists()
    assert [path.name for path in built.path.parent.iterdir()] == ["tiny"]


def test_what_differs_is_named_with_what_is_known_of_it(
    built: Built, recipe: Recipe, cache: Path, seconds: list[Manifest]
) -> None:
    first = built.manifest
    plan = next(path for path in sorted(first.files) if path.endswith(".plan"))
    target = replace(first.engines["target"], backend="onnxruntime")
    for second, message in (
        (changed(first, "run.pyz"), "'run.pyz' of a second build differs$"),
        (changed(first, plan), f"{plan}.* differs; TensorRT writes the same plan in another"),
        (
            replace(first, engines={**first.engines, "target": target}),
            "openvino measured faster for the target in one, onnxruntime in the other: name one",
        ),
    ):
        seconds.append(second)
        with pytest.raises(SpeccompileError, match=f"is built, but not reproducible: .*{message}"):
            verify_reproducible(recipe, built, cache=cache, observer=Observer())
