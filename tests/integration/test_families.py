"""Families whose caches or positions are special, from a checkpoint folder to an artifact."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import prod
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from speccompile.compiler.build import Built
from speccompile.compiler.lower.linear import dimensions
from speccompile.runtime.runner import Runner
from speccompile.runtime.session import Request
from tests.building import Builder, save_model
from tests.families import CONTEXT, Tiny, tiny

PROMPT = list(range(40, 60))
VOCABULARY = 512
_ENDS = {"bos_token_id": None, "eos_token_id": 0}
_TWO_LAYERS = {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]}

BACKENDS = pytest.mark.parametrize("backend", ["openvino", "onnxruntime"])
FAMILIES = pytest.mark.parametrize("family", ["gpt2", "mistral-sliding", "gemma3"])


@pytest.fixture(scope="module")
def pair(
    build_of: Builder, model_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Built]:
    """A family's model in fp32, drafted by itself in int8, on one backend."""

    @cache
    def folder_of(family: str) -> Path:
        folder = tmp_path_factory.mktemp(family)
        return save_model(_tiny(family).model, folder, model_folder)

    @cache
    def build(family: str, backend: str) -> Built:
        return build_of(
            target={"source": folder_of(family), "precision": "fp32"},
            draft={},
            engine={"cpu": [backend]},
            context={"length": CONTEXT},
        )

    return build


@BACKENDS
@FAMILIES
def test_speculation_is_lossless_to_the_very_last_position(
    pair: Callable[[str, str], Built], family: str, backend: str
) -> None:
    """The context is all that the model has: four windows, or every row of a learned table."""
    built = pair(family, backend)
    assert built.report["validation"]["lossless"]
    runner = Runner.open(built.path)
    texts: dict[str, list[int]] = {}
    for draft in ("none", "model"):
        session = runner.session(draft)
        texts[draft] = [*PROMPT, *session.generate(PROMPT, Request(2 * CONTEXT))]
        assert (session.statistics.rounds < CONTEXT - len(PROMPT) - 1) == (draft == "model")
    assert texts["model"] == texts["none"]
    assert len(texts["none"]) == CONTEXT
    expected = _tiny(family).logits(texts["none"])
    chosen = [int(token) for token in expected[len(PROMPT) - 1 : -1].argmax(axis=-1)]
    assert texts["none"][len(PROMPT) :] == chosen
    # The row of the last position itself, which generation does not ask for.
    target = runner.engine("target")
    target.step(texts["none"][:-1])
    row = target.step(texts["none"][-1:])
    assert np.abs(row - expected[-1:]).max() <= 1e-4 * np.abs(expected).max()


@BACKENDS
@pytest.mark.parametrize("family", ["gpt2", "gemma3"])
def test_a_tied_embedding_is_stored_once(
    pair: Callable[[str, str], Built], family: str, backend: str
) -> None:
    built = pair(family, backend)
    assert built.report["models"]["target"]["tied_embeddings"]
    for role, engine in built.manifest.engines.items():
        graph = ir.load(built.path / engine.graph).graph
        tables = [
            name
            for name, value in graph.initializers.items()
            if value.shape and _outputs(dimensions(value)) == VOCABULARY
        ]
        assert len(tables) == 1, (role, tables)
    target = built.manifest.engines["target"]
    parameters = built.report["models"]["target"]["parameters"]
    size = built.manifest.files[f"{target.graph}.data"].size
    constants = sum(
        prod(value.shape.numpy()) * 4
        for value in ir.load(built.path / target.graph).graph.initializers.values()
        if value.shape and str(value.name).startswith("rope.")
    )
    # Small vectors are in the graph; a second table would add a ninth or more.
    assert 0.98 < (size - constants) / (4 * parameters) < 1.02


def _tiny(family: str) -> Tiny:
    return tiny(family, **_ENDS, **(_TWO_LAYERS if family == "gemma3" else {}))


def _outputs(shape: Sequence[int]) -> int:
    """Of a stored matrix, in panels or not; of anything else, none."""
    return {2: shape[0], 3: shape[0] * shape[-1]}.get(len(shape), 0)
