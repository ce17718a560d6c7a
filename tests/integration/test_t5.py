"""Encoder-decoders from checkpoint folders to text, against transformers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx_ir as ir
import pytest
from click.testing import CliRunner

from speccompile.cli.main import cli
from speccompile.compiler.build import Built
from speccompile.compiler.contract import build_contract, build_encoder
from speccompile.compiler.drafts.distil import Observer, distil
from speccompile.compiler.lower.backends import encoder_lowering, lowering
from speccompile.compiler.lower.passes import LoweringError, run_passes
from speccompile.compiler.pairing import PairError
from speccompile.compiler.quantize import write_weights
from speccompile.compiler.recipe import load_recipe
from speccompile.compiler.sources.huggingface import HuggingFaceCheckpoint
from speccompile.compiler.weights import Weights
from speccompile.runtime.engine import Encoder, Engine, Logits, prefill
from speccompile.runtime.engines.encoder import OnnxRuntimeEncoder
from speccompile.runtime.engines.opening import open_encoder, open_engine
from speccompile.runtime.engines.opening_batch import open_batch_engine
from speccompile.runtime.errors import EngineError, SpeccompileError
from speccompile.runtime.proof.prove import Plan, prove
from speccompile.runtime.request import Request
from speccompile.runtime.runner import Runner
from speccompile.runtime.sampling import Sampling
from tests.building import Builder
from tests.lowered import engine_info
from tests.t5_models import T5_KINDS, TinyT5, save_t5, t5_tokenizer, tiny_t5

TOLERANCE = 1e-4  # relative
CAPACITY = 64
SOURCE = [7, 30, 12, 99, 41, 8, 1]
TEXTS = ("The sky is", "def f(x):\n", "Build, twice: build")


class Opened(NamedTuple):
    model: TinyT5
    engine: Engine
    encoder: Encoder
    graph: Path


@pytest.fixture(scope="module", params=T5_KINDS)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    folder, model = tmp_path_factory.mktemp("t5"), tiny_t5(str(request.param))
    return _open(model, folder)


def test_an_engine_computes_what_transformers_does(opened: Opened, tokens: list[int]) -> None:
    """A source after another one, in steps with a cache, and after a roll-back."""
    for source in (SOURCE, [token % 400 for token in tokens[:50]]):
        sequence = [0, *(token % 400 for token in tokens[30:90])]
        expected = opened.model.logits(source, sequence)
        opened.encoder.read(source)
        opened.engine.rollback(0)
        steps = pairwise([0, 1, 2, 7, 40, len(sequence)])
        found = [opened.engine.step(sequence[start:end]).copy() for start, end in steps]
        assert _error(np.concatenate(found), expected) <= TOLERANCE
        opened.engine.rollback(20)
        opened.engine.step([5, 6, 7])
        opened.engine.rollback(20)
        assert _error(opened.engine.step(sequence[20:24]), expected[20:24]) <= TOLERANCE


def test_rows_do_not_depend_on_their_number_from_two_on(opened: Opened) -> None:
    opened.encoder.read(SOURCE)
    opened.engine.rollback(0)
    prefill(opened.engine, [0, *range(3, 30)])
    start = opened.engine.length
    expected = opened.engine.step([9, 8]).copy()
    for count in (3, 5, 8):
        opened.engine.rollback(start)
        rows = opened.engine.step([9, 8, *range(count - 2)])
        np.testing.assert_array_equal(rows[:2], expected)


def test_what_an_engine_cannot_do_is_one_line(opened: Opened, tmp_path: Path) -> None:
    opened.encoder.read(SOURCE)
    opened.engine.rollback(0)
    assert not opened.engine.takes_trees
    with pytest.raises(EngineError, match=r"\A.*: takes chains of rows only, for its position.*\Z"):
        opened.engine.step([0, 5, 6], parents=[-1, 0, 0])
    info = engine_info(opened.model.config, "onnxruntime", CAPACITY)
    unread = open_engine(info, opened.graph, threads=1)
    with pytest.raises(EngineError, match=r"\A.*: no source was read, which its rows attend to\Z"):
        unread.step([0])
    encoded = replace(info, encoder="encoder.onnx")
    with pytest.raises(EngineError, match=r"\A.*: a batch has no sources.*\Z"):
        open_batch_engine(encoded, opened.graph, sequences=2)
    with pytest.raises(EngineError, match=r"\A.*: openvino runs no encoders here.*\Z"):
        open_encoder(replace(info, backend="openvino"), opened.graph)
    write_weights(opened.model.config, opened.model.read, "fp32", tmp_path)
    contract = build_contract(opened.model.config, Weights(tmp_path), CAPACITY)
    with pytest.raises(
        LoweringError, match=r"\AOpenVINO's paged attention adds no position bias.*"
    ):
        run_passes(contract, lowering("openvino"))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target, and a draft that is right now and then: the target with other norms."""
    root, tokenizer = tmp_path_factory.mktemp("models"), t5_tokenizer()
    target, draft = tiny_t5("v1.1"), tiny_t5("v1.1")
    import torch

    with torch.no_grad():
        for name, parameter in draft.model.named_parameters():
            if "decoder" in name and "layer_norm" in name:
                parameter.mul_(1.02)
    return {
        "target": save_t5(target, root / "target", tokenizer),
        "draft": save_t5(draft, root / "draft", tokenizer),
    }


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Builder:
    return Builder(tmp_path_factory.mktemp("builds"))


@pytest.fixture(scope="module")
def built(builder: Builder, folders: dict[str, Path]) -> Built:
    return builder(
        target={"source": folders["target"], "precision": "fp32"},
        draft={"source": folders["draft"], "precision": "fp32", "length": 3},
        engine={"cpu": ["onnxruntime"]},
    )


def test_a_build_gives_the_text_of_transformers(built: Built, folders: dict[str, Path]) -> None:
    """Greedily, with </s> behind the source, in fewer steps than tokens."""
    import torch

    runner = Runner.open(built.path, threads=1)
    model, accepted = tiny_t5("v1.1").model, 0
    for text in TEXTS:
        source = runner.encode(text)
        assert source[-1] == 1
        expected = model.generate(
            torch.tensor([source]), max_new_tokens=24, do_sample=False, use_cache=False
        )[0, 1:].tolist()
        session = runner.session("model", adaptive=False)
        found = _generate(session, source, 24)
        assert found == [token for token in expected if token != 1]
        assert found == _generate(runner.session("none"), source, 24)
        assert session.statistics.prompt_tokens == len(source)
        accepted += sum(session.statistics.accepted)
    assert accepted >= 10


def test_statistics_count_the_real_calls_of_encoders(
    built: Built, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One for each model and request, whatever is drafted: those that a session of ONNX Runtime
    sees, not those that somebody says there were."""
    runner = Runner.open(built.path, threads=1)
    session = runner.session("model", adaptive=False)
    runs: list[tuple[str, int]] = []
    for role in ("target", "draft"):
        encoder = vars(runner)["_encoders"][role]
        assert isinstance(encoder, OnnxRuntimeEncoder)
        monkeypatch.setattr(encoder, "_session", _Recorded(vars(encoder)["_session"], role, runs))
    for number, text in enumerate(TEXTS, start=1):
        source = runner.encode(text)
        assert len(_generate(session, source, 20)) > 3
        assert session.statistics.encoder_calls == {"target": 1, "draft": 1}
        assert runs[-2:] == [("target", len(source)), ("draft", len(source))]
        assert len(runs) == 2 * number
    plain = runner.session("none")
    _generate(plain, [5, 1], 20)
    assert plain.statistics.encoder_calls == {"target": 1}
    assert runs[-1] == ("target", 2)
    assert len(runs) == 7


def test_it_proves_lossless(built: Built) -> None:
    plan = Plan(tokens=12, draft_lengths=(3,), levels=(2, 3, 4), stream_tokens=1000)
    checks = list(prove(Runner.open(built.path, threads=1), TEXTS, plan))
    assert [check.summary for check in checks if not check.passed] == []
    assert {check.name for check in checks} >= {"rows", "roll-back", "seeded", "greedy", "stream"}


def test_the_target_drafts_for_itself_behind_its_own_encoder(
    builder: Builder, folders: dict[str, Path]
) -> None:
    built = builder(
        target={"source": folders["target"], "precision": "fp16"},
        draft={"source": "target", "length": 3, "vocabulary": 350},
        engine={"cpu": ["onnxruntime"]},
    )
    engines = built.manifest.engines
    assert engines["draft"].shares_cache
    assert engines["draft"].encoder is None
    runner = Runner.open(built.path, threads=1)
    session, accepted = runner.session("model", adaptive=False), 0
    for text in TEXTS:
        source = runner.encode(text)
        assert _generate(session, source, 24) == _generate(runner.session("none"), source, 24)
        assert session.statistics.encoder_calls == {"target": 1}
        accepted += sum(session.statistics.accepted)
    assert accepted >= 10


def test_the_commands(built: Built) -> None:
    ran = _call("run", built.path, "The sky is", "-n", "8", "--json", "--quiet")
    assert ran.exit_code == 0, ran.output
    document = json.loads(ran.stdout)
    assert document["statistics"]["encoder_calls"] == {"target": 1, "draft": 1}
    assert not document["text"].startswith(" ")
    inspected = _call("inspect", built.path, "--json")
    content = json.loads(inspected.stdout)
    assert content["model"]["start_token_id"] == 0
    for role in ("target", "draft"):
        path = content["engines"][role]["encoder"]
        assert content["files"][path]["state"] == "ok"
    verified = _call(
        *("verify", built.path, "--levels", "0,3", "--limit", "1", "-n", "8"),
        *("--draft-lengths", "2"),
    )
    assert verified.exit_code == 0, verified.output
    assert "LOSSLESS" in verified.stdout
    spoken = _call("run", built.path, "hi", "--system", "Be brief.")
    assert spoken.exit_code != 0


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"engine": {"cpu": ["openvino", "onnxruntime"]}}, "which openvino does not run here; set"),
        ({"context": {"length": 1024}}, "was trained for 512; lower context.length"),
    ],
)
def test_a_recipe_that_does_not_fit_is_refused_in_one_line(
    builder: Builder, folders: dict[str, Path], tables: dict[str, Any], message: str
) -> None:
    recipe: dict[str, Any] = {
        "target": {"source": folders["target"]},
        "engine": {"cpu": ["onnxruntime"]},
    }
    with pytest.raises(PairError, match=rf"\A.*{message}.*\Z"):
        builder(**{**recipe, **tables})


def test_a_draft_without_an_encoder_is_refused(
    builder: Builder, folders: dict[str, Path], model_folder: Path
) -> None:
    with pytest.raises(PairError, match=r"is an encoder-decoder and the draft is none; choose two"):
        builder(
            target={"source": folders["target"]},
            draft={"source": model_folder},
            engine={"cpu": ["onnxruntime"]},
        )


def test_distillation_is_refused(tmp_path: Path, folders: dict[str, Path]) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(f'name = "t"\n[target]\nsource = "{folders["target"]}"\n', encoding="utf-8")
    with pytest.raises(SpeccompileError, match="is an encoder-decoder, of which no draft is"):
        distil(
            load_recipe(str(recipe)),
            tmp_path / "draft",
            cache=tmp_path,
            seconds=None,
            observer=Observer(),
        )


@pytest.mark.parametrize("saved_tied", [True, False])
def test_a_head_of_its_own_is_read_whatever_the_configuration_says(
    tmp_path: Path, saved_tied: bool
) -> None:
    """Versions of transformers differ in what they write of one and the same model."""
    model = tiny_t5("v1.1")
    folder = save_t5(model, tmp_path / "t5", t5_tokenizer())
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["tie_word_embeddings"] = saved_tied
    if not saved_tied:
        del config["scale_decoder_outputs"]
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    checkpoint = HuggingFaceCheckpoint(folder, source="t5")
    assert checkpoint.config == replace(model.config, tied_embeddings=False, logit_scale=1.0)
    np.testing.assert_array_equal(
        checkpoint.tensor("lm_head.weight"), model.model.lm_head.weight.detach().numpy()
    )


class _Recorded:
    """A session of ONNX Runtime whose runs are written down."""

    def __init__(self, session: Any, role: str, runs: list[tuple[str, int]]) -> None:  # noqa: ANN401
        self._session, self._role, self._runs = session, role, runs

    def run_with_ort_values(self, names: list[str], feeds: dict[str, Any]) -> Any:  # noqa: ANN401
        self._runs.append((self._role, feeds["input_ids"].shape()[1]))
        return self._session.run_with_ort_values(names, feeds)


def _open(model: TinyT5, folder: Path) -> Opened:
    write_weights(model.config, model.read, "fp32", folder)
    weights = Weights(folder)
    graphs = {
        "model": (build_contract(model.config, weights, CAPACITY), lowering("onnxruntime")),
        "encoder": (build_encoder(model.config, weights), encoder_lowering()),
    }
    for name, (graph, passes) in graphs.items():
        run_passes(graph, passes)
        ir.save(graph, folder / f"{name}.onnx", external_data=f"{name}.onnx.data")
    info = engine_info(model.config, "onnxruntime", CAPACITY)
    encoder = open_encoder(info, folder / "encoder.onnx", threads=1)
    engine = open_engine(info, folder / "model.onnx", threads=1, encoder=encoder)
    return Opened(model, engine, encoder, folder / "model.onnx")


def _generate(session: Any, source: Sequence[int], count: int) -> list[int]:  # noqa: ANN401
    request = Request(count, Sampling(), draft_length=3, stop_tokens=frozenset({1}))
    return list(session.generate(source, request))


def _call(*arguments: object) -> Any:  # noqa: ANN401 - click's Result
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def _error(found: Logits, expected: Logits) -> float:
    return float(np.abs(found - expected).max() / np.abs(expected).max())
