"""ONNX Runtime: matrices are stored in panels, which operators of our own multiply.

ONNX Runtime itself would convert 16-bit weights to fp32 when it opens, and read twice their bytes
in every step; it multiplies int8 weights by rows that it rounds to int8; and a row alone comes out
otherwise than among others. `PanelMatMul` reads weights as they are stored, from the file, which is
mapped, and its sums are in fp32 and do not depend on the number of rows.

A panel is 16 outputs of a layer, [in, 16]; what is missing of the last is zeros. A tied embedding
reads its rows from the panels: the matrix is stored once.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from speccompile.compiler.graph import GraphBuilder
from speccompile.compiler.lower.linear import (
    Product,
    dimensions,
    lazy_weight,
    products,
    stored_array,
)
from speccompile.compiler.lower.passes import Pass
from speccompile.plugins.cpu.library import DOMAIN, WIDTH

__all__ = ["PANELS"]


def _rewrite(model: ir.Model) -> int:
    graph, stored = model.graph, dict[ir.Value, ir.Value]()
    found = list(products(graph))
    for product in found:
        weight = product.matrix.weight
        stored[weight] = _multiply(graph, product, stored.get(weight))
    for weight, panels in stored.items():
        for node in list(weight.consumers()):
            if node.op_type == "Gather":
                _gather(graph, node, panels)
    model.opset_imports[DOMAIN] = 1
    return len(found)


def _multiply(graph: ir.Graph, product: Product, panels: ir.Value | None) -> ir.Value:
    builder, path, matrix = GraphBuilder(), str(product.node.name), product.matrix
    if panels is None:
        panels = _panels(builder, matrix.weight)
    columns = dimensions(matrix.weight)[0]
    scales = None
    if matrix.scale is not None:
        padded = _padded(stored_array(matrix.scale))
        scales = builder.constant(f"{path}.scales", padded)
    result = builder.op(
        "PanelMatMul",
        f"{path}/Panels",
        product.rows,
        panels,
        *([scales] if scales else []),
        domain=DOMAIN,
        columns=columns,
    )
    builder.splice(graph, product.node)
    product.node.outputs[0].replace_all_uses_with(result)
    return panels


def _panels(builder: GraphBuilder, weight: ir.Value) -> ir.Value:
    rows, columns = dimensions(weight)
    shape = -(-rows // WIDTH), columns, WIDTH
    dtype = weight.dtype or ir.DataType.FLOAT
    return lazy_weight(builder, f"{weight.name}.panels", [weight], _turned, dtype, shape)


def _turned(stored: NDArray[np.generic]) -> NDArray[np.generic]:
    """[out, in] -> [panels, in, WIDTH]."""
    padded = _padded(stored)
    return padded.reshape(-1, WIDTH, padded.shape[1]).transpose(0, 2, 1)


def _padded(values: NDArray[np.generic]) -> NDArray[np.generic]:
    """With zeros behind it, a whole number of panels."""
    missing = -len(values) % WIDTH
    if not missing:
        return values
    return np.concatenate([values, np.zeros((missing, *values.shape[1:]), values.dtype)])


def _gather(graph: ir.Graph, gather: ir.Node, panels: ir.Value) -> None:
    """Look rows up in the panels, as floats: instead of the Gather, and of the Cast behind it."""
    builder = GraphBuilder()
    rows = builder.op(
        "PanelGather", f"{gather.name}/Panels", panels, gather.inputs[1], domain=DOMAIN
    )
    builder.splice(graph, gather)
    replaced = gather.outputs[0]
    if panels.dtype != ir.DataType.FLOAT:
        (cast,) = replaced.consumers()
        replaced = cast.outputs[0]
    replaced.replace_all_uses_with(rows)


PANELS = Pass("panels", _rewrite)
