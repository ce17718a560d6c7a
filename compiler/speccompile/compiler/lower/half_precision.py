"""TensorRT: arithmetic and caches in fp16, but for what fp16 cannot hold.

The network is strongly typed, so the graph says of every node what it computes in. That is fp32

* where the output passes fp16's range on the calibration text (`KEEP_FP32_KEY`), and where such an
  output is read;
* in products whose matrix is stored in fp32: it was asked for, or fp16 cannot hold it;
* in softmax and tanh, and in elementwise nodes all of whose inputs are in fp32 anyway.

Everything else is fp16, and ``Cast`` stands between the two. Norms sum in fp32 inside (their
`stash_type`), whatever their input is. Rotations are tables in the type of what they rotate, which
TensorRT insists on: in fp16 they err as much as the rounding of the keys that they make.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx_ir as ir

from speccompile.compiler.contract import KEEP_FP32_KEY
from speccompile.compiler.graph import GraphBuilder
from speccompile.compiler.lower.half_values import FLOATS, HALF, SINGLE, HalfValues, fits_half
from speccompile.compiler.lower.linear import Product, linears, products, stored_array
from speccompile.compiler.lower.passes import LoweringError, Pass

__all__ = ["HALF_PRECISION"]

_IN_SINGLE = frozenset({"Softmax", "Tanh"})
_MOVES = frozenset(
    {"Gather", "Identity", "Reshape", "RotaryEmbedding", "Split", "Transpose", "Unsqueeze"}
)
_ELEMENTWISE = frozenset(
    {"Add", "Gelu", "LayerNormalization", "Mul", "RMSNormalization", "Swish", "Where"}
)
_FOLLOWING = _ELEMENTWISE | {"Reshape", "RotaryEmbedding", "Split", "Transpose"}
_KNOWN = _IN_SINGLE | _MOVES | _ELEMENTWISE | {"Attention", "MatMul", "TensorScatter"}


def _rewrite(model: ir.Model) -> int:
    return _Halving(model.graph).run()


class _Halving:
    """One walk over the nodes, in order."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._values = HalfValues()
        self._stored = {product.node: product for product in products(graph)}
        self._of_weights = {node for each in self._stored.values() for node in _chain(each)}
        self._marked = set(_marked(graph))

    def run(self) -> int:
        """Returns the number of nodes that stay in fp32."""
        for value in self._graph.inputs:
            if value.dtype in FLOATS:
                self._values.add(value, HALF)
        return sum(self._visit(node) for node in list(self._graph))

    def _visit(self, node: ir.Node) -> bool:
        floats = [value for value in node.inputs if value and self._values.is_float(value)]
        if not floats or node in self._of_weights:
            return False
        if node.op_type == "Cast":
            self._values.alias(node.outputs[0], floats[0])
        elif node.op_type == "DequantizeLinear":
            self._dequantize(node)
        elif node.op_type == "QuantizeLinear":
            self._quantize(node)
        elif node.op_type in _KNOWN:
            return self._compute(node, floats)
        else:
            raise LoweringError(f"{node.name}: no rule says what {node.op_type} is computed in")
        return False

    def _compute(self, node: ir.Node, floats: list[ir.Value]) -> bool:
        values, product = self._values, self._stored.get(node)
        read = [value for value in floats if value.const_value is None]
        wide = any(value in values.wide for value in read)
        if node.op_type == "TensorScatter" and wide:
            raise LoweringError(
                f"{node.name}: rows of {read[1].name} pass what a cache in fp16 can hold; "
                "leave TensorRT out of the recipe's engines"
            )
        single = (
            wide
            or node in self._marked
            or node.op_type in _IN_SINGLE
            or (node.op_type in _FOLLOWING and all(values.is_single(value) for value in read))
            or _stored_single(node, product)
        )
        dtype = SINGLE if single else HALF
        builder = GraphBuilder()
        for index, value in enumerate(node.inputs):
            if value in floats and not (product and index == 1):
                node.replace_input_with(index, values.form(builder, value, dtype))
        if product:
            self._store(builder, product, dtype)
        builder.splice(self._graph, node)
        too_large = node in self._marked or (wide and node.op_type in _MOVES)
        for output in node.outputs:
            values.add(output, dtype, wide=too_large or _is_wide_table(node))
        return single

    def _store(self, builder: GraphBuilder, product: Product, dtype: ir.DataType) -> None:
        """Have the matrix of `product` turned, and read, as `dtype`."""
        transpose, *source = _chain(product)
        matrix = product.matrix
        if matrix.scale is not None:
            source[0].attributes["output_dtype"] = ir.AttrInt64("output_dtype", dtype)
        elif dtype == HALF or matrix.weight.dtype == SINGLE:
            transpose.replace_input_with(0, self._values.form(builder, matrix.weight, dtype))
        for node in (transpose, *source):
            node.outputs[0].type = ir.TensorType(dtype)

    def _dequantize(self, node: ir.Node) -> None:
        """Codes of a table, or of rows that were rounded a moment ago."""
        quantize = node.inputs[0].producer() if node.inputs[0] else None
        wide = quantize is not None and quantize.inputs[0] in self._values.wide
        dtype = SINGLE if wide else HALF
        node.attributes["output_dtype"] = ir.AttrInt64("output_dtype", dtype)
        self._values.add(node.outputs[0], dtype, wide=wide)

    def _quantize(self, node: ir.Node) -> None:
        """Rows are rounded in whatever type they are in; the step stays fp32."""
        builder, rows = GraphBuilder(), node.inputs[0]
        if rows is not None:
            dtype = SINGLE if self._values.is_single(rows) else HALF
            node.replace_input_with(0, self._values.form(builder, rows, dtype))


def _chain(product: Product) -> list[ir.Node]:
    """From the matrix as it is multiplied back to its stored values: Transpose, and what converts
    them."""
    chain: list[ir.Node] = []
    value = product.node.inputs[1]
    while value is not None and (node := value.producer()):
        chain.append(node)
        value = node.inputs[0]
    return chain


def _marked(graph: ir.Graph) -> Iterator[ir.Node]:
    """Nodes whose output is too large. The mark of a layer stands on its product, and holds for the
    sum with the part of outliers too."""
    for node in graph:
        if node.metadata_props.get(KEEP_FP32_KEY):
            yield node
    for linear in linears(graph):
        if linear.outliers and linear.product.node.metadata_props.get(KEEP_FP32_KEY):
            yield from linear.product.node.outputs[0].consumers()


def _stored_single(node: ir.Node, product: Product | None) -> bool:
    """Whether what `node` reads of the weights has to be in fp32, or was asked to be."""
    if product and product.matrix.scale:
        largest = float(stored_array(product.matrix.scale).max()) * 127.0
        return largest > float(np.finfo(np.float16).max)
    if product:
        return product.matrix.weight.dtype == SINGLE
    if node.op_type == "Gather":
        return any(table.dtype == SINGLE for table in _constants(node))
    return not all(map(fits_half, _constants(node)))


def _constants(node: ir.Node) -> Iterator[ir.Value]:
    """Stored floating-point inputs that are read as a whole."""
    for value in node.inputs:
        if value and value.const_value is not None and value.dtype in FLOATS:
            yield value


def _is_wide_table(node: ir.Node) -> bool:
    return node.op_type == "Gather" and not all(map(fits_half, _constants(node)))


HALF_PRECISION = Pass("half_precision", _rewrite)
