"""A draft's head computes some of the tokens only: the rows of its matrix are gathered.

To mask the logits of a whole head would save nothing. A tied embedding stays whole: the head gets
rows of its own. The weights change no value, so that a token's logit is what it was.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from speccompile.compiler.graph import GraphBuilder
from speccompile.compiler.lower.cached_attention import extent
from speccompile.compiler.lower.linear import (
    Matrix,
    Product,
    dimensions,
    lazy_weight,
    products,
    transposed,
)
from speccompile.compiler.lower.passes import LoweringError, Pass

__all__ = ["restrict_head"]

_HEAD = "/lm_head"
_BIAS = f"{_HEAD}/bias"


def restrict_head(token_ids: NDArray[np.int32]) -> Pass:
    """The pass after which column i of ``logits`` is that of token ``token_ids[i]``."""
    return Pass("restrict_head", lambda model: _rewrite(model.graph, token_ids))


def _rewrite(graph: ir.Graph, token_ids: NDArray[np.int32]) -> int:
    # One, or with columns of outliers two.
    parts = [part for part in products(graph) if str(part.node.name).startswith(f"{_HEAD}/")]
    if not parts:
        raise LoweringError(f"the graph has no {_HEAD}, of which rows could be left out")
    for part in parts:
        _restrict_product(graph, part, token_ids)
    for node in graph:
        if node.name == _BIAS and (bias := node.inputs[1]):
            builder = GraphBuilder()
            gathered = _gathered(builder, bias, token_ids)
            builder.splice(graph, node)
            node.replace_input_with(1, gathered)
    logits = next(value for value in graph.outputs if value.name == "logits")
    if logits.shape is None or token_ids[-1] >= extent(logits, 2):
        raise LoweringError(f"the graph has no token {token_ids[-1]}")
    logits.shape = ir.Shape([*logits.shape[:2], len(token_ids)])
    return len(parts)


def _restrict_product(graph: ir.Graph, part: Product, token_ids: NDArray[np.int32]) -> None:
    builder, matrix = GraphBuilder(), part.matrix
    scale = matrix.scale and _gathered(builder, matrix.scale, token_ids)
    gathered = Matrix(_gathered(builder, matrix.weight, token_ids), scale)
    path = str(part.node.name).removesuffix("/MatMul")
    turned = transposed(builder, gathered, f"{path}/restricted")
    builder.splice(graph, part.node)
    part.node.replace_input_with(1, turned)


def _gathered(builder: GraphBuilder, value: ir.Value, token_ids: NDArray[np.int32]) -> ir.Value:
    """The rows of an initializer, taken when the graph is written."""

    def take(stored: NDArray[np.generic]) -> NDArray[np.generic]:
        return stored[token_ids]

    shape = (len(token_ids), *dimensions(value)[1:])
    dtype = value.dtype or ir.DataType.FLOAT
    return lazy_weight(builder, f"{value.name}.restricted", [value], take, dtype, shape)
