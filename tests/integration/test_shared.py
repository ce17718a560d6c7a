"""A draft of a target's own layers made by the command, and the artifact that it drafts in."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import onnx_ir as ir
import pytest
from click.testing import CliRunner

from speccompile.cli.main import cli
from speccompile.compiler.drafts.folder import DRAFT_FILE
from speccompile.runtime.artifact import open_artifact
from speccompile.runtime.drafting.shared_cache import SharedCacheDraft
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.runner import Runner
from speccompile.runtime.session import Request, Session
from tests.building import Builder

_SHARED = """
[shared]
prompts = 24
length = 12
tokens = 4000
vocabulary = 400
"""


@pytest.fixture(scope="module")
def recipe(recipe_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shared") / "tiny.toml"
    path.write_text(recipe_file.read_text("utf-8") + _SHARED, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def draft(recipe: Path, cache: Path) -> Path:
    output = recipe.with_name("tiny")
    how = ["draft", "shared", str(recipe), "-o", str(output), "--cache", str(cache)]
    stopped = CliRunner().invoke(cli, [*how, "--minutes", "0"])
    assert "Not all is learned yet" in stopped.stdout
    done = CliRunner().invoke(cli, how)
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    assert "1 of 2 layers (" in text
    assert "by the weights it reads" in text
    assert "15x would take a cost below 0.067" in text
    for kind in ("chat", "code"):
        assert f"{kind} target's " in text
        assert f"{kind} own " in text
    assert f'draft.source = "{output}"' in done.stdout.replace("\n", "")
    return output


def test_it_says_how_it_was_made(draft: Path) -> None:
    content = json.loads((draft / DRAFT_FILE).read_text("utf-8"))
    training = content["training"]
    assert content["kind"] == "shared"
    assert len(content["layers"]) == 1
    assert [len(each["layers"]) for each in training["search"]] == [2, 1]
    assert content["layers"] == training["search"][1]["layers"]
    assert training["tokens"] >= 4000
    assert {*training["held_out"]} == {*training["held_out_apart"]} == {"chat", "code"}


@pytest.mark.parametrize("backend", ["openvino", "onnxruntime"])
def test_it_drafts_in_its_targets_cache(
    draft: Path, build_of: Builder, model_folder: Path, backend: str
) -> None:
    built = build_of(
        target={"source": model_folder},
        draft={"source": draft, "vocabulary": 400},
        engine={"cpu": [backend]},
    )
    assert built.measurements.lossless
    engine = open_artifact(built.path).manifest.engines["draft"]
    assert (engine.shares_cache, engine.layers, engine.precision) == (True, 1, "int8")
    runner = Runner.open(built.path, threads=1)
    assert isinstance(runner.draft("model"), SharedCacheDraft)
    prompt, request = runner.encode_raw("def build(recipe):"), Request(32, draft_length=3)
    plain = list(Session(runner.engine("target")).generate(prompt, request))
    session = Session(runner.engine("target"), runner.draft("model"))
    assert list(session.generate(prompt, request)) == plain
    assert sum(session.statistics.proposed) > 0


@pytest.mark.parametrize("backend", ["openvino", "onnxruntime"])
def test_in_the_targets_precision_its_matrices_are_the_targets_bytes(
    draft: Path, build_of: Builder, model_folder: Path, backend: str
) -> None:
    built = build_of(
        target={"source": model_folder},
        draft={"source": draft, "precision": "fp16"},
        engine={"cpu": [backend]},
    )
    assert built.measurements.lossless
    engine = open_artifact(built.path).manifest.engines["draft"]
    assert engine.graph == "engines/cpu/target/draft.onnx"
    graph = ir.load(built.path / engine.graph).graph
    matrices = [
        value.const_value
        for value in graph.initializers.values()
        if value.const_value is not None and value.const_value.size > 512
    ]
    assert len(matrices) >= 5
    for matrix in matrices:
        assert isinstance(matrix, ir.ExternalTensor)
        assert matrix.location == "model.onnx.data"


def test_beside_another_target_it_is_refused(
    draft: Path, build_of: Builder, other_model_folder: Path
) -> None:
    with pytest.raises(SpeccompileError, match=r"made of the layers of another target than"):
        build_of(target={"source": other_model_folder}, draft={"source": draft})


def test_what_an_artifact_measured_is_what_steps_cost(
    draft: Path, recipe: Path, cache: Path, build_of: Builder, model_folder: Path, tmp_path: Path
) -> None:
    built = build_of(target={"source": model_folder}, draft={"source": draft, "vocabulary": 400})
    costs = built.measurements.cost_ms
    how = ["draft", "shared", str(recipe), "-o", str(tmp_path / "again"), "--cache", str(cache)]
    done = CliRunner().invoke(cli, [*how, "--measured", str(built.path)])
    assert done.exit_code == 0, done.output
    text = " ".join(done.stdout.split())
    assert (
        f"costs {costs['draft'][1] / costs['target'][1]:.2f} of the target's (in proportion" in text
    )
    assert "tokens/s" in text


def test_a_table_that_does_not_fit_the_target_is_refused(
    recipe: Path, cache: Path, tmp_path: Path
) -> None:
    for keys, message in (
        ("layers = [2]", "shared.layers has 2, but the target's are 0 to 1"),
        ("count = 2", "a draft of them all is the target"),
        ("layers = [0, 1]", "a draft of them all is the target"),
        ("layers = [1, 0]", "must rise"),
    ):
        wrong = tmp_path / "wrong.toml"
        shutil.copyfile(recipe, wrong)
        wrong.write_text(f"{wrong.read_text('utf-8')}{keys}\n", encoding="utf-8")
        how = ["draft", "shared", str(wrong), "-o", str(tmp_path / "x"), "--cache", str(cache)]
        refused = CliRunner().invoke(cli, how)
        assert refused.exit_code != 0
        assert message in " ".join(f"{refused.output} {refused.exception}".split())
