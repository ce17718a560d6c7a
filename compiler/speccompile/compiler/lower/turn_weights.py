"""ONNX Runtime: floating-point matrices are stored as they are multiplied, ``[in, out]``.

The session converts fp16 and bf16 weights to fp32 and turns them when it opens. Both results are in
memory at once until all are done, which for a model of 1.5 B parameters is 6 GB more than it keeps.
A matrix that is also read by row, a tied embedding, is left as it is: it is stored once.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from speccompile.compiler.graph import GraphBuilder
from speccompile.compiler.lower.linear import dimensions, lazy_weight, products
from speccompile.compiler.lower.passes import Pass

__all__ = ["TURN_WEIGHTS"]


def _rewrite(model: ir.Model) -> int:
    count = 0
    for product in list(products(model.graph)):
        weight, node = product.matrix.weight, product.node
        if product.matrix.scale is not None or len(list(weight.consumers())) > 1:
            continue
        builder, dtype, name = GraphBuilder(), weight.dtype or ir.DataType.FLOAT, str(weight.name)
        turned = lazy_weight(
            builder,
            f"{name}.turned",
            [weight],
            _turned,
            dtype,
            dimensions(weight)[::-1],
        )
        if dtype != ir.DataType.FLOAT:
            turned = builder.op("Cast", f"{node.name}/TurnedCast", turned, to=ir.DataType.FLOAT)
        builder.splice(model.graph, node)
        node.replace_input_with(1, turned)
        count += 1
    return count


def _turned(stored: NDArray[np.generic]) -> NDArray[np.generic]:
    return stored.T


TURN_WEIGHTS = Pass("turn_weights", _rewrite)
