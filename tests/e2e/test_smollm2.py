"""The catalogue's model, for real: its numbers against transformers, and its artifact at work."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx_ir as ir
import pytest

from speccompile.compiler.build import build
from speccompile.compiler.cache import default_cache
from speccompile.compiler.contract import build_contract
from speccompile.compiler.drafts.evaluate_folder import evaluate_folder
from speccompile.compiler.drafts.evaluation import Question
from speccompile.compiler.execute import Observer
from speccompile.compiler.quantize import write_weights
from speccompile.compiler.recipe import load_recipe
from speccompile.compiler.reference import ContractEngine
from speccompile.compiler.sources.checkpoint import Checkpoint, SourceError
from speccompile.compiler.sources.opening import open_checkpoint
from speccompile.compiler.weights import Weights
from speccompile.runtime.drafting.ngram import NgramDraft
from speccompile.runtime.engines.opening import open_engine
from speccompile.runtime.runner import Runner
from speccompile.runtime.session import Finish, Request, Session
from tests.lowered import lowered
from tests.oracle import Greedy, chat_tokens, greedy, transformers_model

pytestmark = pytest.mark.model

_PROMPTS = (
    "Write a Python function that checks whether a string is a palindrome.",
    "What is the capital of France?",
)
_REPEATING = "Say these words three times: red, green, blue, red, green, blue."

_CAPACITY = 160


@pytest.fixture(scope="module")
def runner(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    """Of the catalogue's recipe, but for how many tokens it is judged on."""
    recipe = load_recipe("smollm2-135m")
    validation = recipe.validation.model_copy(update={"tokens": 16, "evaluate_tokens": 256})
    calibrate = recipe.calibrate.model_copy(update={"tokens": 256})
    recipe = recipe.model_copy(update={"validation": validation, "calibrate": calibrate})
    destination = tmp_path_factory.mktemp("artifacts") / recipe.name
    build(recipe, destination, cache=default_cache(), observer=Observer())
    return Runner.open(destination)


@pytest.fixture(scope="module")
def checkpoint() -> Checkpoint:
    target = load_recipe("smollm2-135m").target
    try:
        return open_checkpoint(target.source, sha256=target.sha256, cache=default_cache())
    except SourceError as error:
        if "network" in str(error):
            pytest.skip(f"the weights cannot be fetched: {error}")
        raise


@pytest.fixture(scope="module")
def weights(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the weights in fp32."""
    folder = tmp_path_factory.mktemp("fp32")
    write_weights(checkpoint.config, checkpoint.tensor, "fp32", folder)
    return folder


@pytest.fixture(scope="module")
def oracle(checkpoint: Checkpoint) -> Any:  # noqa: ANN401 - transformers has no types
    return transformers_model(checkpoint)


@pytest.fixture(scope="module")
def expected_texts(checkpoint: Checkpoint, oracle: Any) -> list[tuple[list[int], Greedy]]:  # noqa: ANN401
    """Prompts, and what transformers makes of them."""
    files = checkpoint.tokenizer
    prompts = [chat_tokens(files, text) for text in (*_PROMPTS, _REPEATING)]
    return [(prompt, greedy(oracle, prompt, 32, files.eos_token_ids)) for prompt in prompts]


def test_the_contract_equals_transformers_on_the_real_weights(
    checkpoint: Checkpoint,
    oracle: Any,  # noqa: ANN401
    weights: Path,
    tmp_path: Path,
) -> None:
    import torch

    config = checkpoint.config
    ir.save(build_contract(config, Weights(weights), 96), tmp_path / "model.onnx")
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, 64).tolist()
    with torch.inference_mode():
        expected = oracle(torch.tensor([tokens])).logits[0].numpy()
    engine = ContractEngine(tmp_path / "model.onnx", weights)
    prompt = engine.step(tokens[:48]).copy()
    actual = np.concatenate([prompt, engine.step(tokens[48:])])
    assert np.abs(actual - expected).max() / np.abs(expected).max() <= 1e-5


@pytest.mark.parametrize("backend", ["openvino", "onnxruntime"])
def test_greedy_text_in_fp32_equals_transformers(
    checkpoint: Checkpoint,
    weights: Path,
    expected_texts: list[tuple[list[int], Greedy]],
    backend: Literal["openvino", "onnxruntime"],
    tmp_path: Path,
) -> None:
    config = checkpoint.config
    graph = build_contract(config, Weights(weights), _CAPACITY)
    info, path = lowered(graph, config, backend, tmp_path, _CAPACITY, min_rows=2)
    engine = open_engine(info, path)
    drafted = 0
    for prompt, expected in expected_texts:
        for draft in (None, NgramDraft()):
            session = Session(engine, draft)
            request = Request(32, draft_length=5 if draft else 0, stop_tokens=expected.stop)
            difference = expected.difference(list(session.generate(prompt, request)))
            assert difference is None or difference.tie, difference
            drafted += sum(session.statistics.accepted)
    assert drafted > 0


def test_another_text_is_told_from_transformers(
    expected_texts: list[tuple[list[int], Greedy]],
) -> None:
    (_, expected), *_ = expected_texts
    tokens = expected.tokens
    changed = expected.difference([*tokens[:5], tokens[5] + 1, *tokens[6:]])
    assert changed is not None
    assert (changed.position, changed.found, changed.tie) == (5, tokens[5] + 1, False)
    shorter = expected.difference(tokens[:9])
    assert shorter is not None
    assert (shorter.position, shorter.found, shorter.tie) == (9, None, False)


def test_speculation_changes_no_word(runner: Runner) -> None:
    stop = frozenset(runner.manifest.model.eos_token_ids)
    for text in _PROMPTS:
        prompt = runner.encode_chat([{"role": "user", "content": text}])
        plain = list(
            runner.session("none").generate(prompt, Request(48, draft_length=0, stop_tokens=stop))
        )
        for draft in ("model", "ngram"):
            for length in (1, 2, 5, 8):
                request = Request(48, draft_length=length, stop_tokens=stop)
                assert list(runner.session(draft).generate(prompt, request)) == plain


def test_the_rows_of_the_target_are_exact(runner: Runner) -> None:
    assert runner.manifest.engines["target"].min_rows > 0


def test_the_quantized_draft_is_nearly_always_right(runner: Runner) -> None:
    assert runner.measurements.acceptance[0] > 0.85


def test_it_knows_the_capital_of_france(runner: Runner) -> None:
    prompt = runner.encode_chat([{"role": "user", "content": _PROMPTS[1]}])
    stop = frozenset(runner.manifest.model.eos_token_ids)
    session = runner.session()
    text = "".join(runner.stream(session, prompt, Request(24, stop_tokens=stop)))
    assert "Paris" in text
    assert session.finish is Finish.STOP


@pytest.mark.usefixtures("checkpoint")  # its target, or the test is skipped
def test_the_draft_of_the_catalogue_is_often_right() -> None:
    draft = load_recipe("smollm2-135m-distilled").draft
    assert draft
    questions = [Question(text, "any") for text in (_PROMPTS[0], _REPEATING)]
    found = evaluate_folder(
        Path(draft.source),
        questions,
        tokens=32,
        depth=4,
        cache=default_cache(),
        progress=lambda done, total, doing: None,
    )
    assert found.domains["any"].positions[0] > 0.35
