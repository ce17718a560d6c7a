"""A build from a model folder to an artifact, whole, interrupted and refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from speccompile.compiler import build as build_module
from speccompile.compiler.build import build
from speccompile.compiler.execute import Observer, StageResult
from speccompile.compiler.recipe import Recipe, load_recipe
from speccompile.runtime.artifact import open_artifact
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.runner import Runner
from speccompile.runtime.session import Request


class Recorder(Observer):
    def __init__(self) -> None:
        self.results: list[StageResult] = []

    def finished(self, result: StageResult) -> None:
        self.results.append(result)


@pytest.fixture
def recipe(recipe_file: Path) -> Recipe:
    return load_recipe(str(recipe_file))


def test_the_artifact_is_whole_and_says_what_was_measured(artifact: Path) -> None:
    manifest = open_artifact(artifact).manifest
    assert manifest.lossless
    assert set(manifest.engines) == {"target", "draft"}
    assert manifest.engines["target"].precision == "fp16"
    assert manifest.engines["draft"].precision == "int8"
    assert manifest.model.context_length == 256
    assert manifest.model.eos_token_ids == (0,)
    assert all(cost > 0 for engine in manifest.engines.values() for cost in engine.cost_ms.values())
    report = json.loads((artifact / "reports/build.json").read_text(encoding="utf-8"))
    assert len(report["candidates"]) == 4
    assert sum(entry["chosen"] for entry in report["candidates"]) == 2
    assert report["validation"]["lossless"]


def test_nothing_in_the_artifact_can_run_unasked(artifact: Path) -> None:
    files = {
        path.relative_to(artifact).as_posix() for path in artifact.rglob("*") if path.is_file()
    }
    assert {path.rsplit(".", 1)[-1] for path in files} <= {"json", "onnx", "data", "jinja", "pyz"}


def test_the_artifact_works_after_being_moved(artifact: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    moved.mkdir()
    for path in sorted(artifact.rglob("*")):
        copy = moved / path.relative_to(artifact)
        copy.mkdir() if path.is_dir() else copy.write_bytes(path.read_bytes())
    request = Request(max_new_tokens=8)
    outputs = [
        list(runner.session().generate(runner.encode_raw("def f"), request))
        for runner in (Runner.open(artifact), Runner.open(moved))
    ]
    assert outputs[0] == outputs[1]
    assert len(outputs[0]) > 0


def test_a_second_build_takes_every_stage_from_the_cache(
    recipe: Recipe, artifact: Path, cache: Path, tmp_path: Path
) -> None:
    recorder = Recorder()
    build(recipe, tmp_path / "tiny", cache=cache, observer=recorder)
    assert [result.name for result in recorder.results if not result.cached] == ["validate"]


def test_an_interrupted_build_leaves_the_old_artifact_and_is_resumed(
    recipe: Recipe,
    artifact: Path,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    destination = tmp_path / "tiny"
    old = build(recipe, destination, cache=cache, observer=Observer()).manifest.identity

    def interrupted(*arguments: object) -> Mapping[str, object]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(build_module, "publish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            build(recipe, destination, cache=cache, observer=Observer())
    assert open_artifact(destination).manifest.identity == old
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".staging")] == []


def test_a_draft_below_the_gate_fails_the_build_and_leaves_nothing(
    recipe_file: Path, other_model_folder: Path, cache: Path, tmp_path: Path
) -> None:
    text = recipe_file.read_text(encoding="utf-8") + "min_acceptance = 0.5\n"
    text = text.replace("[draft]", f'[draft]\nsource = "{other_model_folder}"')
    strict = tmp_path / "strict.toml"
    strict.write_text(text, encoding="utf-8")
    destination = tmp_path / "out" / "tiny"
    with pytest.raises(SpeccompileError, match=r"below validate\.min_acceptance = 0\.5"):
        build(load_recipe(str(strict)), destination, cache=cache, observer=Observer())
    assert not destination.exists()
