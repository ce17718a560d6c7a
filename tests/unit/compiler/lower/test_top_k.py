from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import openvino as ov
import pytest
from numpy.typing import NDArray
from openvino import opset13 as ops
from openvino.frontend import NodeContext
from openvino.frontend.onnx import ConversionExtension

from speccompile.compiler.graph import GraphBuilder, declare
from speccompile.compiler.lower.passes import LoweringError, run_passes
from speccompile.compiler.lower.top_k import top_k

VOCABULARY = 300
Outputs = dict[str, NDArray[np.float64]]


def onnxruntime(path: Path, rows: NDArray[np.float32]) -> Outputs:
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    values = session.run(None, {"rows": rows})
    return {name: np.asarray(value, np.float64) for name, value in zip(names, values, strict=True)}


def openvino(path: Path, rows: NDArray[np.float32]) -> Outputs:
    core = ov.Core()
    core.add_extension(ConversionExtension("TopK", "", _stable))
    request = core.compile_model(path, "CPU").create_infer_request()
    request.infer({"rows": rows})
    names = ("top_ids", "top_logits", "log_sum_exp")
    return {name: request.get_tensor(name).data.astype(np.float64) for name in names}


@pytest.mark.parametrize("scale", [1.0, 400.0], ids=["small", "large"])
@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("run", [onnxruntime, openvino])
def test_the_best_are_chosen_the_lowest_of_equals_first(
    tmp_path: Path, run: Callable[[Path, NDArray[np.float32]], Outputs], count: int, scale: float
) -> None:
    # Few values: most of the best are equal. Large ones would overflow a careless sum.
    rows = np.random.default_rng(0).integers(0, 4, (1, 5, VOCABULARY)).astype(np.float32)
    rows *= np.float32(scale)
    model = _head()
    assert run_passes(model, [top_k(count)]) == {f"top_{count}": 1}
    ir.save(model, tmp_path / "model.onnx")
    found = run(tmp_path / "model.onnx", rows)
    assert list(found) == ["top_ids", "top_logits", "log_sum_exp"]
    ids = np.argsort(-rows, axis=-1, kind="stable")[..., :count]
    np.testing.assert_array_equal(found["top_ids"], ids)
    np.testing.assert_array_equal(found["top_ids"][..., 0], rows.argmax(-1))
    np.testing.assert_array_equal(found["top_logits"], np.take_along_axis(rows, ids, -1))
    peaks = rows.max(-1, keepdims=True)
    total = np.log(np.exp(rows.astype(np.float64) - peaks).sum(-1)) + peaks[..., 0]
    np.testing.assert_allclose(found["log_sum_exp"], total, rtol=1e-6)


def test_the_logits_do_not_leave_the_graph() -> None:
    model = _head()
    run_passes(model, [top_k(3)])
    shapes = {value.name: str(value.shape) for value in model.graph.outputs}
    assert shapes == {"top_ids": "[B,N,3]", "top_logits": "[B,N,3]", "log_sum_exp": "[B,N]"}
    assert "Identity" not in {node.op_type for node in model.graph}


@pytest.mark.parametrize("count", [0, VOCABULARY + 1])
def test_a_count_beyond_the_vocabulary_is_refused(count: int) -> None:
    with pytest.raises(LoweringError, match=f"cannot choose {count} of 300 tokens"):
        run_passes(_head(), [top_k(count)])


def _head() -> ir.Model:
    """A graph that names its rows ``logits``."""
    rows = declare("rows", ir.DataType.FLOAT, ("B", "N", VOCABULARY))
    builder = GraphBuilder()
    logits = builder.op("Identity", "logits", builder.op("Abs", "/lm_head", rows))
    logits.type = ir.TensorType(ir.DataType.FLOAT)
    logits.shape = ir.Shape(("B", "N", VOCABULARY))
    return builder.model("head", [rows], [logits])


def _stable(node: NodeContext) -> list[ov.Output]:
    """ONNX's TopK with the order of equals that ONNX promises (see the pass)."""
    count = ops.reshape(node.get_input(1), np.array([], np.int64), special_zero=False)
    chosen = ops.topk(
        node.get_input(0), count, -1, "max", "value", index_element_type="i64", stable=True
    )
    outputs: list[ov.Output] = chosen.outputs()
    return outputs
