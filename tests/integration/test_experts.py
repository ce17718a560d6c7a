"""Several drafts of one target in one artifact: alone, in one tree, and whichever was right."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from speccompile.cli.inspect import command as inspect_command
from speccompile.compiler.build import Built
from speccompile.compiler.pairing import PairError
from speccompile.runtime import decoding
from speccompile.runtime.bench.ceiling import step_reads
from speccompile.runtime.control.controller import FixedController
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.engine import Logits
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.proof.prove import Plan, prove
from speccompile.runtime.runner import Runner
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Request
from speccompile.runtime.verify import Verdict
from tests.building import Builder, save_model
from tests.families import tiny

EXPERTS = ("far", "near")
DRAFTS = ("model", *EXPERTS, "union", "hedge")
PROMPT = list(range(40, 80))
REQUEST = Request(60)
SHAPES = {"chain": FixedController(4), "tree": FixedController(3, 12)}


@pytest.fixture(scope="module")
def models(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target, a model that mostly agrees with it, and one that seldom does."""
    import torch

    model = tiny("llama", max_position_embeddings=512, bos_token_id=None, eos_token_id=0).model
    found = {"target": save_model(model, tmp_path_factory.mktemp("target"), model_folder)}
    for name, noise in (("near", 0.03), ("far", 0.5)):
        torch.manual_seed(1)
        with torch.no_grad():
            for values in model.parameters():
                values += noise * values.std() * torch.randn(values.shape)
        found[name] = save_model(model, tmp_path_factory.mktemp(name), model_folder)
    return found


@pytest.fixture(scope="module")
def built(models: dict[str, Path], build_of: Builder) -> Built:
    """The target in INT8 drafts in its cache; the experts have caches of their own."""
    experts = [
        {"name": "near", "source": models["near"], "length": 2},
        {"name": "far", "source": models["far"], "precision": "fp16", "vocabulary": 400},
    ]
    return build_of(
        target={"source": models["target"]},
        draft={"experts": experts},
        engine={"cpu": ["onnxruntime"]},
    )


@pytest.fixture(scope="module")
def runner(built: Built) -> Runner:
    return Runner.open(built.path)


@pytest.fixture(scope="module")
def plain(runner: Runner) -> list[int]:
    return list(runner.session("none").generate(PROMPT, REQUEST))


def test_every_expert_is_in_the_artifact(built: Built) -> None:
    manifest = built.manifest
    assert manifest.drafts == ("draft", *EXPERTS)
    for name in EXPERTS:
        engine = manifest.engines[name]
        assert engine.graph == f"engines/cpu/{name}/model.onnx"
        assert (built.path / engine.graph).is_file()
        assert not engine.shares_cache
    assert manifest.engines["far"].precision == "fp16"
    assert manifest.engines["far"].token_ids == "engines/cpu/far/token_ids.bin"


def test_every_expert_is_measured_and_the_fastest_drafts(built: Built) -> None:
    measured, report = built.measurements, built.report
    assert measured.cost_ms.keys() == {"target", "draft", *EXPERTS}
    assert measured.experts["near"][0] > measured.experts["far"][0]
    assert report["validation"]["lossless"] is True
    predicted = {
        name: max(judged["predicted_speedup"].values())
        for name, judged in {"model": report["verdict"], **report["experts"]}.items()
    }
    # The recipe fixes the length of "near".
    predicted["near"] = report["experts"]["near"]["predicted_speedup"][2]
    best = max(predicted, key=lambda name: predicted[name])
    assert measured.defaults.draft == (best if predicted[best] > 1 else "none")
    assert {entry["role"] for entry in report["candidates"]} == {"target", "draft", *EXPERTS}
    assert report["recipe"]["draft"]["experts"][0]["name"] == "near"


def test_a_benchmark_knows_whose_weights_a_step_reads(runner: Runner) -> None:
    near, far = (step_reads(runner, [name]) for name in ("near", "far"))
    assert near is not None
    assert far is not None
    assert near["target"] == far["target"]
    assert near["draft"].weights < far["draft"].weights  # INT8, FP16
    assert step_reads(runner, ["union"]) is None  # whose steps were whose is not counted


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("draft", DRAFTS)
def test_greedy_output_is_that_of_plain_decoding(
    runner: Runner, plain: list[int], draft: str, shape: str
) -> None:
    session = runner.host_session(draft, SHAPES[shape])
    for _ in range(2):  # the second time with what the first left in all caches
        assert list(session.generate(PROMPT, REQUEST)) == plain
        assert sum(session.statistics.proposed) > 20
    adapts = runner.session(draft)
    assert list(adapts.generate(PROMPT, REQUEST)) == plain


@pytest.mark.parametrize("draft", DRAFTS)
def test_the_comparison_would_show_unverified_proposals(
    runner: Runner, plain: list[int], draft: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The negative control: whatever is proposed stands."""

    def accept(
        logits: Logits,
        proposal: Proposal,
        tokens: Sequence[int],
        sampler: Sampler,
        rule: str,
    ) -> Verdict:
        path = list(range(len(proposal.tokens) + 1))
        return Verdict(path, int(np.argmax(logits[-1])))

    monkeypatch.setattr(decoding, "verify", accept)
    session = runner.host_session(draft, SHAPES["chain"])
    assert list(session.generate(PROMPT, REQUEST)) != plain


def test_the_united_ask_every_expert(runner: Runner) -> None:
    """In a tree with room for all, each brings tokens that the others do not."""
    draft = runner.draft("union")
    assert draft is not None
    draft.start(PROMPT)
    effort = FixedController(3, 12).effort(3)
    assert effort is not None
    runner.engine("target").step(PROMPT[:-1])
    proposal = draft.propose(PROMPT, effort, Sampler(Sampling()))
    assert {"model", *EXPERTS} <= set(proposal.sources)


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_seed_has_one_output_whoever_drafts(runner: Runner, draft: str) -> None:
    request = Request(40, sampling=Sampling(temperature=1.0, seed=5, audited=True))
    expected = list(runner.session("none").generate(PROMPT, request))
    for controller in SHAPES.values():
        session = runner.host_session(draft, controller)
        assert list(session.generate(PROMPT, request)) == expected


def test_the_proof_checks_every_expert(runner: Runner) -> None:
    plan = Plan(tokens=8, draft_lengths=(2,), levels=(3,))
    *_, greedy = prove(runner, ["def f(x):"], plan)
    assert greedy.name == "greedy"
    assert greedy.passed
    assert greedy.details["drafts"] == ["model", *EXPERTS, "ngram", "suffix", "union", "hedge"]


def test_an_unknown_draft_is_refused_with_those_there_are(runner: Runner) -> None:
    with pytest.raises(
        SpeccompileError, match=r"'cod' is unknown; choose one of .*none, far, near$"
    ):
        runner.session("cod")


def test_inspect_shows_the_experts(built: Built) -> None:
    shown = CliRunner().invoke(inspect_command, [str(built.path), "--no-hash"])
    assert shown.exit_code == 0
    lines = [line.split() for line in shown.output.splitlines()]
    for name in EXPERTS:
        assert any(line[:2] == [name, "onnxruntime"] for line in lines)
        assert any(line[:2] == [name, "acceptance"] for line in lines)
        assert any(line[:2] == [name, "source"] for line in lines)


def test_an_expert_with_another_tokenizer_is_refused(
    models: dict[str, Path], build_of: Builder, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(models["near"], other)
    path = other / "tokenizer_config.json"
    path.write_text(path.read_text("utf-8").replace("<|end|>", "<|user|>"), encoding="utf-8")
    with pytest.raises(PairError, match=r"eos_token is .* to the draft; choose") as refused:
        build_of(
            target={"source": models["target"]},
            draft={"experts": [{"name": "other", "source": other}]},
        )
    assert str(refused.value).endswith(f"(target {models['target']}, draft {other})")
