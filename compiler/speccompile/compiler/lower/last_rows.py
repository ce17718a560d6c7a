"""The head computes only the rows that are asked for: the last ones of a prompt, all of a round.

The graph gets an input ``logit_rows`` int64 [R], the rows of the step whose logits it returns,
[B, R, V]. The rest of the graph computes all N rows, for the caches.
"""

from __future__ import annotations

import onnx_ir as ir

from speccompile.compiler.graph import GraphBuilder, declare
from speccompile.compiler.lower.cached_attention import extent, replace_interface
from speccompile.compiler.lower.passes import LoweringError, Pass

__all__ = ["LAST_ROWS"]

_FINAL_NORM = "/model/norm"


def _rewrite(model: ir.Model) -> int:
    graph = model.graph
    norm = next((node for node in graph if node.name == _FINAL_NORM), None)
    if norm is None or norm.inputs[0] is None:
        raise LoweringError(f"the graph has no {_FINAL_NORM}, behind which the head begins")
    rows, builder = declare("logit_rows", ir.DataType.INT64, ("R",)), GraphBuilder()
    kept = builder.op("Gather", "/model/last_rows", norm.inputs[0], rows, axis=1)
    builder.splice(graph, norm)
    norm.replace_input_with(0, kept)
    logits = next(value for value in graph.outputs if value.name == "logits")
    logits.shape = ir.Shape(("B", "R", extent(logits, 2)))
    replace_interface(model, [rows], {str(value.name) for value in graph.outputs})
    return 1


LAST_ROWS = Pass("last_rows", _rewrite)
