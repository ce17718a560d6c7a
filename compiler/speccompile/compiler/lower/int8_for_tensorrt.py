"""TensorRT: INT8 in the forms that its parser takes, and that stay INT8 in a plan.

A stored matrix has to go straight into its ``DequantizeLinear``: a table is dequantized as a whole
in the graph, and its rows are gathered of that. TensorRT fuses the two; what is kept and read are
bytes. A tied embedding is in a plan twice, since the head's bytes lie in another order.
"""

from __future__ import annotations

import onnx_ir as ir

from speccompile.compiler.graph import GraphBuilder
from speccompile.compiler.lower.passes import LoweringError, Pass

__all__ = ["INT8_TABLES", "UNROUNDED_INPUTS"]


def _gather_dequantized(model: ir.Model) -> int:
    graph = model.graph
    found = [node for node in graph if node.op_type == "Gather" and _is_int8(node.inputs[0])]
    for node in found:
        table, rows = node.inputs[0], node.outputs[0]
        product, scale = _scaled(rows)
        builder, path = GraphBuilder(), str(node.name)
        dense = builder.op("DequantizeLinear", f"{path}/dequantize", table, scale, axis=0)
        builder.splice(graph, node)
        node.replace_input_with(0, dense)
        product.replace_all_uses_with(rows)
    return len(found)


def _is_int8(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None and value.dtype == ir.DataType.INT8


def _scaled(rows: ir.Value) -> tuple[ir.Value, ir.Value]:
    """The product of gathered `rows` with their scales, and the stored scale of all rows."""
    (cast,) = rows.consumers()
    (product,) = cast.outputs[0].consumers()
    widened = product.inputs[1].producer() if product.inputs[1] else None
    gather = widened.inputs[0].producer() if widened and widened.inputs[0] else None
    scale = gather.inputs[0] if gather else None
    if scale is None:
        raise LoweringError(f"{rows.name}: its scales are not gathered as its rows are")
    return product.outputs[0], scale


def _unround(model: ir.Model) -> int:
    count = 0
    for node in list(model.graph):
        codes = node.inputs[0].producer() if node.inputs and node.inputs[0] else None
        is_pair = node.op_type == "DequantizeLinear" and codes is not None
        if is_pair and codes and codes.op_type == "QuantizeLinear" and codes.inputs[0]:
            node.outputs[0].replace_all_uses_with(codes.inputs[0])
            count += 1
    return count


INT8_TABLES = Pass("int8_tables", _gather_dequantized)

UNROUNDED_INPUTS = Pass("unrounded_inputs", _unround, removes=frozenset({"QuantizeLinear"}))
"""Weights alone in INT8: the inputs of layers are no longer rounded to it."""
