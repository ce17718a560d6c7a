"""The best tokens are chosen in the graph, so that the logits need not leave the device.

``logits`` [B, N, V] is replaced by ``top_ids`` int64 and ``top_logits`` [B, N, k], best first, of
equal ones the lowest id first as `numpy.argmax` has it, and by ``log_sum_exp`` [B, N], which makes
probabilities of them.

OpenVINO's frontend makes of ONNX's `TopK` one that orders equal values anyhow: an engine of it has
to convert that node with ``stable=True``. No CPU engine is lowered with this pass: there the logits
are in the host's memory as soon as they are computed. *Measured*, the best of 20 steps of one row
with 2 threads, for a vocabulary of 49,152 (151,936): `numpy.argmax` takes 0.005 (0.017) ms; the
head with logits out 8.9 (39.6) ms in ONNX Runtime and 8.5 (37.8) in OpenVINO, with this pass's
outputs for k = 8 instead 9.9 (51.0) and 9.1 (47.0).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from speccompile.compiler.graph import GraphBuilder
from speccompile.compiler.lower.cached_attention import extent
from speccompile.compiler.lower.passes import LoweringError, Pass

__all__ = ["top_k"]


def top_k(count: int) -> Pass:
    """The pass for `count` tokens a row."""
    return Pass(
        f"top_{count}", lambda model: _rewrite(model.graph, count), ensures=frozenset({"TopK"})
    )


def _rewrite(graph: ir.Graph, count: int) -> int:
    logits = next((value for value in graph.outputs if value.name == "logits"), None)
    named = logits.producer() if logits else None  # an Identity, which gives them that name
    rows = named.inputs[0] if named else None
    if logits is None or logits.shape is None or named is None or rows is None:
        raise LoweringError("the graph has no logits to choose from")
    if not 0 < count <= extent(logits, 2):
        raise LoweringError(f"cannot choose {count} of {extent(logits, 2)} tokens")
    builder, shape = GraphBuilder(), tuple(logits.shape)[:2]
    size = builder.constant("top.k", np.array([count]))
    best, ids = builder.split("TopK", "/top/TopK", rows, size, outputs=2, axis=-1)
    last = builder.constant("top.axis", np.array([-1]))
    total = builder.op("ReduceLogSumExp", "/top/ReduceLogSumExp", rows, last, keepdims=0)
    builder.splice(graph, named)
    float32, int64 = ir.DataType.FLOAT, ir.DataType.INT64
    outputs = [
        _named(ids, "top_ids", int64, (*shape, count)),
        _named(best, "top_logits", float32, (*shape, count)),
        _named(total, "log_sum_exp", float32, shape),
    ]
    graph.outputs[:] = [*outputs, *(value for value in graph.outputs if value is not logits)]
    return 1


def _named(
    value: ir.Value, name: str, dtype: ir.DataType, shape: tuple[int | ir.SymbolicDim, ...]
) -> ir.Value:
    value.name, value.type, value.shape = name, ir.TensorType(dtype), ir.Shape(shape)
    return value
