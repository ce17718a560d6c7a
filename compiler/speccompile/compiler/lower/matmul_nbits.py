"""ONNX Runtime: int8 linear layers become `MatMulNBits`, which computes in int8.

The operator stores a matrix in blocks along its input, one scale a block, as unsigned bytes with a
zero point of 128. Row-wise scales are repeated for every block, so that no value changes; the
activations are quantized by the operator, block by block (accuracy level 4).
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from speccompile.compiler.graph import CONTRIB_DOMAIN, GraphBuilder
from speccompile.compiler.lower.linear import Linear, linears, stored_array
from speccompile.compiler.lower.passes import Pass

__all__ = ["BLOCK_ROWS", "MATMUL_NBITS"]

BLOCK_ROWS = 128
_ZERO_POINT = 128


def _rewrite(model: ir.Model) -> int:
    graph = model.graph
    found = [linear for linear in linears(graph) if linear.scale is not None]
    packed = {linear.weight: _replace(graph, linear) for linear in found}
    for weight, blocks in packed.items():
        for node in list(weight.consumers()):
            if node.op_type == "Gather":
                _gather_packed(graph, node, weight, blocks)
    return len(found)


def _replace(graph: ir.Graph, linear: Linear) -> ir.Value:
    builder, path = GraphBuilder(), str(linear.node.name)
    values = stored_array(linear.weight)
    scales = stored_array(linear.scale) if linear.scale else np.ones(len(values), np.float32)
    blocks = _blocks(values)
    packed = builder.constant(f"{path}.blocks", blocks)
    repeated = builder.constant(f"{path}.scales", np.repeat(scales, blocks.shape[1]))
    product = builder.op(
        "MatMulNBits",
        f"{path}/NBits",
        linear.rows,
        packed,
        repeated,
        domain=CONTRIB_DOMAIN,
        K=values.shape[1],
        N=values.shape[0],
        bits=8,
        block_size=BLOCK_ROWS,
        accuracy_level=4,
    )
    builder.splice(graph, linear.node)
    linear.output.replace_all_uses_with(product)
    return packed


def _blocks(values: NDArray[np.generic]) -> NDArray[np.uint8]:
    """[out, in] int8 -> [out, blocks, BLOCK_ROWS] uint8, the last block padded with zeros."""
    rows, columns = values.shape
    count = -(-columns // BLOCK_ROWS)
    padded = np.full((rows, count * BLOCK_ROWS), _ZERO_POINT, np.uint8)
    padded[:, :columns] = values.astype(np.int16) + _ZERO_POINT
    return padded.reshape(rows, count, BLOCK_ROWS)


def _gather_packed(graph: ir.Graph, gather: ir.Node, weight: ir.Value, blocks: ir.Value) -> None:
    """A tied embedding reads its rows from the packed matrix: the weights are stored once."""
    builder, path = GraphBuilder(), str(gather.name)
    rows = builder.op("Gather", f"{path}/blocks", blocks, gather.inputs[1])
    flat = builder.constant("shape.flat", np.array([0, 0, -1]))
    rows = builder.op("Reshape", f"{path}/flat", rows, flat)
    columns = stored_array(weight).shape[1]
    if columns % BLOCK_ROWS:
        bounds = (np.array([0]), np.array([columns]), np.array([2]))
        start, end, axis = (
            builder.constant(f"{path}.{name}", bound)
            for name, bound in zip(("start", "end", "axis"), bounds, strict=True)
        )
        rows = builder.op("Slice", f"{path}/columns", rows, start, end, axis)
    rows = builder.op("Cast", f"{path}/float", rows, to=ir.DataType.FLOAT)
    zero = builder.constant(f"{path}.zero_point", np.array([_ZERO_POINT], np.float32))
    centred = builder.op("Sub", f"{path}/centred", rows, zero)
    builder.splice(graph, gather)
    (cast,) = gather.outputs[0].consumers()
    cast.outputs[0].replace_all_uses_with(centred)


MATMUL_NBITS = Pass(
    "matmul_nbits",
    _rewrite,
    ensures=frozenset({"MatMulNBits"}),
    removes=frozenset({"DequantizeLinear"}),
)
