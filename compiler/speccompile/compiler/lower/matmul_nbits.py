"""ONNX Runtime: int8 weights are multiplied by `MatMulNBits`, which computes in int8.

The operator stores a matrix in blocks along its input, one scale a block, as unsigned bytes with a
zero point of 128. Row-wise scales are repeated for every block, so that no value changes; the
activations are quantized by the operator, block by block (accuracy level 4). Layers whose input is
rounded to int8 by the graph are left as they are: ONNX Runtime fuses these itself.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from speccompile.compiler.graph import CONTRIB_DOMAIN, GraphBuilder
from speccompile.compiler.lower.linear import (
    Product,
    dimensions,
    lazy_weight,
    products,
    stored_array,
)
from speccompile.compiler.lower.passes import Pass

__all__ = ["BLOCK_ROWS", "MATMUL_NBITS"]

BLOCK_ROWS = 128
_ZERO_POINT = 128


def _rewrite(model: ir.Model) -> int:
    graph, packed = model.graph, dict[ir.Value, ir.Value]()
    found = [product for product in products(graph) if _is_int8(product)]
    for product in found:
        packed[product.matrix.weight] = _replace(graph, product)
    for weight, blocks in packed.items():
        for node in list(weight.consumers()):
            if node.op_type == "Gather":
                _gather_packed(graph, node, weight, blocks)
    return len(found)


def _is_int8(product: Product) -> bool:
    source = product.rows.producer()
    is_rounded = source is not None and source.op_type == "DequantizeLinear"
    return product.matrix.scale is not None and not is_rounded


def _replace(graph: ir.Graph, product: Product) -> ir.Value:
    builder, path, matrix = GraphBuilder(), str(product.node.name), product.matrix
    (rows, columns), scale = dimensions(matrix.weight), matrix.scale
    count = -(-columns // BLOCK_ROWS)
    packed = lazy_weight(
        builder,
        f"{path}.blocks",
        [matrix.weight],
        _blocks,
        ir.DataType.UINT8,
        (rows, count, BLOCK_ROWS),
    )
    scales = np.ones(rows, np.float32) if scale is None else stored_array(scale)
    repeated = builder.constant(f"{path}.scales", np.repeat(scales, count))
    result = builder.op(
        "MatMulNBits",
        f"{path}/NBits",
        product.rows,
        packed,
        repeated,
        domain=CONTRIB_DOMAIN,
        K=columns,
        N=rows,
        bits=8,
        block_size=BLOCK_ROWS,
        accuracy_level=4,
    )
    builder.splice(graph, product.node)
    product.node.outputs[0].replace_all_uses_with(result)
    return packed


def _blocks(values: NDArray[np.generic]) -> NDArray[np.uint8]:
    """[out, in] int8 -> [out, blocks, BLOCK_ROWS] uint8, the last block padded with zeros."""
    rows, columns = values.shape
    count = -(-columns // BLOCK_ROWS)
    padded = np.full((rows, count * BLOCK_ROWS), _ZERO_POINT, np.uint8)
    # Adding 128 to a byte flips its highest bit.
    np.bitwise_xor(values.view(np.uint8), np.uint8(_ZERO_POINT), out=padded[:, :columns])
    return padded.reshape(rows, count, BLOCK_ROWS)


def _gather_packed(graph: ir.Graph, gather: ir.Node, weight: ir.Value, blocks: ir.Value) -> None:
    """A tied embedding reads its rows from the packed matrix: the weights are stored once."""
    builder, path = GraphBuilder(), str(gather.name)
    rows = builder.op("Gather", f"{path}/blocks", blocks, gather.inputs[1])
    flat = builder.constant("shape.flat", np.array([0, 0, -1]))
    rows = builder.op("Reshape", f"{path}/flat", rows, flat)
    columns = dimensions(weight)[1]
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


MATMUL_NBITS = Pass("matmul_nbits", _rewrite)
