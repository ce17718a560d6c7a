"""What an artifact is does not depend on when, where, or after what it is built."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from speccompile.compiler.recipe import load_recipe
from speccompile.runtime.artifact import Artifact, open_artifact
from tests.building import build_here

# One engine: which of two is the faster is measured, and would be another recipe's choice.
_RECIPE = """
name = "tiny"
target.source = "./model"
target.precision = "{precision}"
draft.precision = "int8"
engine.cpu = ["onnxruntime"]
context.length = 256
validate.tokens = 8
validate.prompts = "prompts.txt"
"""


@pytest.fixture(scope="module")
def built(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Artifact, ...]:
    """Two artifacts of one recipe, each built in a place of its own that held nothing before."""
    artifacts: list[Artifact] = []
    for _ in range(2):
        place = tmp_path_factory.mktemp("place")
        shutil.copytree(model_folder, place / "model")
        (place / "prompts.txt").write_text("def f\n", encoding="utf-8")
        artifacts.append(_build(place, "fp16"))
    return tuple(artifacts)


def test_two_builds_have_one_identity(built: tuple[Artifact, ...]) -> None:
    first, second = built
    assert first.root.parent != second.root.parent
    manifests = [(artifact.root / "manifest.json").read_bytes() for artifact in built]
    assert manifests[0] == manifests[1]
    for path in first.manifest.files:
        assert first.path(path).read_bytes() == second.path(path).read_bytes(), path


def test_what_was_measured_is_kept_apart(built: tuple[Artifact, ...]) -> None:
    first, second = built
    assert first.measurements.manifest == second.measurements.manifest == first.manifest.identity
    # Times to the microsecond are never the same twice: the builds did measure each for itself.
    assert first.measurements.cost_ms != second.measurements.cost_ms


def test_no_place_of_the_build_is_in_it(built: tuple[Artifact, ...]) -> None:
    for artifact in built:
        place = str(artifact.root.parent).encode()
        for path in ("manifest.json", *artifact.manifest.files):
            assert place not in (artifact.root / path).read_bytes(), path


def test_another_precision_is_another_artifact(built: tuple[Artifact, ...]) -> None:
    first = built[0]
    other = _build(first.root.parent, "fp32")
    assert other.manifest.identity != first.manifest.identity
    graph = first.manifest.engines["target"].graph
    weights = f"{graph}.data"
    assert other.manifest.files[weights] != first.manifest.files[weights]
    assert other.manifest.files["run.pyz"] == first.manifest.files["run.pyz"]


def _build(place: Path, precision: str) -> Artifact:
    recipe = place / f"{precision}.toml"
    recipe.write_text(_RECIPE.format(precision=precision), encoding="utf-8")
    destination = place / precision
    build_here(load_recipe(str(recipe)), destination, cache=place / "cache")
    return open_artifact(destination)
