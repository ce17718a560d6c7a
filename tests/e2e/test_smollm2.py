"""The catalogue's model, for real: its numbers against transformers, and its artifact at work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from speccompile.compiler.build import build
from speccompile.compiler.cache import default_cache
from speccompile.compiler.contract import build_contract
from speccompile.compiler.execute import Observer
from speccompile.compiler.quantize import write_weights
from speccompile.compiler.recipe import load_recipe
from speccompile.compiler.reference import ContractEngine
from speccompile.compiler.sources.checkpoint import Checkpoint, SourceError
from speccompile.compiler.sources.opening import open_checkpoint
from speccompile.compiler.weights import Weights
from speccompile.runtime.runner import Runner
from speccompile.runtime.session import Finish, Request
from tests.oracle import transformers_model

pytestmark = pytest.mark.model

_PROMPTS = (
    "Write a Python function that checks whether a string is a palindrome.",
    "What is the capital of France?",
)


@pytest.fixture(scope="module")
def runner(checkpoint: Checkpoint, tmp_path_factory: pytest.TempPathFactory) -> Runner:
    recipe = load_recipe("smollm2-135m")
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


def test_the_contract_equals_transformers_on_the_real_weights(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    import torch

    config = checkpoint.config
    write_weights(config, checkpoint.tensor, "fp32", tmp_path)
    ir.save(build_contract(config, Weights(tmp_path), 96), tmp_path / "model.onnx")
    model = transformers_model(checkpoint)
    tokens = np.random.default_rng(0).integers(0, config.vocab_size, 64).tolist()
    with torch.inference_mode():
        expected = model(torch.tensor([tokens])).logits[0].numpy()
    engine = ContractEngine(tmp_path / "model.onnx")
    prompt = engine.step(tokens[:48]).copy()
    actual = np.concatenate([prompt, engine.step(tokens[48:])])
    assert np.abs(actual - expected).max() / np.abs(expected).max() <= 1e-5


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
