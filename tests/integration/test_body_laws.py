"""The laws that the function bodies draw from, bit for bit the oracle's.

A verdict hides a law that is off by 1e-7: few decisions fall that close. So the functions that make
and change laws are compared by themselves, in ONNX Runtime with and without its optimizers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from speccompile.compiler.graph import GraphBuilder, declare
from speccompile.compiler.verify_functions import attach
from speccompile.plugins import spec_verify as oracle
from speccompile.plugins.laws import Sampling, draw, exponential, law, without
from speccompile.plugins.schema import DOMAIN, INVALID, spec_verify
from tests.trees import random_rounds

OPTIMIZED = pytest.mark.parametrize("optimized", [True, False])


def call(
    function: str,
    *inputs: NDArray[Any],
    outputs: int = 1,
    optimized: bool = True,
    changed: Mapping[str, str] | None = None,
) -> list[NDArray[Any]]:
    """What a function of the bodies gives; the operators in `changed` are taken for others."""
    builder = GraphBuilder()
    arguments = [
        declare(f"x{index}", ir.DataType.from_numpy(array.dtype), array.shape)
        for index, array in enumerate(inputs)
    ]
    results = builder.split(function, "y", *arguments, outputs=outputs, domain=DOMAIN)
    model = builder.model(function, arguments, results)
    attach(model, spec_verify("traversal"), "traversal")
    for each in model.functions.values():
        for node in each.all_nodes():
            node.op_type = (changed or {}).get(node.op_type, node.op_type)
    options = ort.SessionOptions()
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    graph = ir.to_proto(model).SerializeToString()
    session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    feeds = {f"x{index}": array for index, array in enumerate(inputs)}
    return [np.asarray(result) for result in session.run(None, feeds)]


@OPTIMIZED
def test_exponential(optimized: bool) -> None:
    edges = [-40.0, float(np.nextafter(np.float32(-40), np.float32(-41))), -np.inf, -0.0, -1e-40]
    values = np.array([*np.linspace(-41, 0, 200_001), *edges], np.float32)
    (found,) = call("Exponential", values, optimized=optimized)
    assert found.tobytes() == exponential(values).tobytes()


@OPTIMIZED
@pytest.mark.parametrize("vocabulary", [1, 3, 40, 1001])
def test_laws(vocabulary: int, optimized: bool) -> None:
    rounds = random_rounds(vocabulary, 300, 4, vocabulary)
    (found,) = call("Law", rounds.logits, rounds.sampling, optimized=optimized)
    assert found.tobytes() == _laws(rounds.logits, rounds.sampling).tobytes()


@pytest.mark.parametrize(
    ("operator", "replacement"), [("Round", "Floor"), ("GreaterOrEqual", "Greater")]
)
def test_a_changed_law_is_caught(operator: str, replacement: str) -> None:
    rounds = random_rounds(40, 300, 4, 40)
    (found,) = call("Law", rounds.logits, rounds.sampling, changed={operator: replacement})
    assert found.tobytes() != _laws(rounds.logits, rounds.sampling).tobytes()


@OPTIMIZED
def test_draws(optimized: bool) -> None:
    rounds = random_rounds(1, 500, 4, 40)
    rows = _laws(rounds.logits, rounds.sampling)
    numbers = rounds.uniforms[..., 1]
    (found,) = call("Draw", rows, numbers, optimized=optimized)
    for index in np.ndindex(numbers.shape):
        token = draw(rows[index], int(numbers[index]))
        assert found[index] == (INVALID if token is None else token)


@OPTIMIZED
def test_rejections(optimized: bool) -> None:
    rounds = random_rounds(2, 1500, 1, 30, broken=0.0)
    p = _laws(rounds.logits, rounds.sampling)[:, 0]
    q = _laws(rounds.draft_logits, rounds.sampling)[:, 0]
    p[::5] = q[::5]  # no residual
    weights = np.where(np.arange(1500) % 2, 1.0, np.random.default_rng(0).random(1500))
    tokens = rounds.tokens[:, 0]
    found = call("Reject", p, q, weights, tokens, outputs=3, optimized=optimized)
    for index, token in enumerate(tokens):
        node = oracle._Node(p[index], float(weights[index]))  # pyright: ignore[reportPrivateUsage]
        node.reject(q[index])
        p_left, q_left, weight_left = (array[index] for array in found)
        assert p_left.tobytes() == node.p.tobytes()
        assert q_left.tobytes() == without(q[index], int(token)).tobytes()
        assert weight_left == node.weight


def _laws(logits: NDArray[Any], sampling: NDArray[np.float32]) -> NDArray[np.float32]:
    """Of every row [B, N, V]; 0 everywhere for an invalid one."""
    laws = np.zeros(logits.shape, np.float32)
    for index in np.ndindex(logits.shape[:2]):
        temperature, top_k, top_p, min_p = (float(value) for value in sampling[index[0]])
        row = law(logits[index], Sampling(temperature, int(top_k), top_p, min_p))
        if row is not None:
            laws[index] = row
    return laws
