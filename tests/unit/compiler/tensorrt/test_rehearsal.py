"""A lowered graph in ONNX Runtime: fp16 is fp16, and what cannot be run is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx.parser
import onnx_ir as ir
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from speccompile.compiler.lower.backends import plan_lowering
from speccompile.compiler.lower.passes import run_passes
from speccompile.compiler.tensorrt.rehearsal import PlanRun, chain, make_runnable
from speccompile.runtime.errors import EngineError
from tests.unit.compiler.lower.graphs import CAPACITY, STORAGES, TOKENS, contract, write

Half = NDArray[np.float16]

_OVERFLOWING = """
<ir_version: 10, opset_import: ["" : 24]>
graph (float16[N] x, float16 large, float16 small) => (float16[N] same)
<float16[N] product>
{
    product = Mul (x, large)
    same = Mul (product, small)
}
"""


def test_every_value_is_rounded() -> None:
    model = ir.from_proto(onnx.parser.parse_model(_OVERFLOWING))
    values = np.array([1.0, 100.0], np.float16)
    assert np.isfinite(_run(model, values)).all()  # left alone, ONNX Runtime computes in fp32
    make_runnable(model, "greedy")
    assert np.isfinite(_run(model, values)).tolist() == [True, False]


def test_a_step_goes_on_where_the_caches_end(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["fp16"])
    tokens = np.array([TOKENS[:8]])
    together = PlanRun(_lowered(tmp_path), tmp_path, "greedy").step(tokens)["logits"]
    plan = PlanRun(_lowered(tmp_path), tmp_path, "greedy")
    first = plan.step(tokens[:, :5])["logits"]
    plan.lengths += 5
    second = plan.step(tokens[:, 5:], chain(1, 3))["logits"]
    in_two = np.concatenate([first, second], axis=1).astype(np.float32)
    np.testing.assert_allclose(in_two, together.astype(np.float32), atol=2e-2)


def test_weights_that_are_not_there_are_missed(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["fp16"])
    model = _lowered(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    with pytest.raises(EngineError, match=r"elsewhere: not a graph that can be rehearsed: "):
        PlanRun(model, elsewhere, "greedy")


def _lowered(folder: Path) -> ir.Model:
    model = contract(folder)
    run_passes(model, plan_lowering("tensorrt_rtx", "greedy", CAPACITY))
    return model


def _run(model: ir.Model, values: Half) -> Half:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    graph = ir.to_proto(model).SerializeToString()
    session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    factors = {"large": np.array(1e3, np.float16), "small": np.array(1e-3, np.float16)}
    return np.asarray(session.run(None, {"x": values, **factors})[0])
