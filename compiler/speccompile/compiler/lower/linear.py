"""Recognize the contract's linear layers, and build such layers of other stored weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from speccompile.compiler.graph import GraphBuilder

__all__ = [
    "Linear",
    "Matrix",
    "Outliers",
    "Product",
    "dimensions",
    "lazy_weight",
    "linears",
    "products",
    "stored_array",
    "transposed",
]


@dataclass(frozen=True)
class Matrix:
    """An initializer ``[out, in]`` of any type; that of int8 has a `scale`, fp32 ``[out]``."""

    weight: ir.Value
    scale: ir.Value | None


@dataclass(frozen=True)
class Product:
    """``rows @ matrix.T``, the MatMul `node`."""

    node: ir.Node
    rows: ir.Value
    matrix: Matrix


@dataclass(frozen=True)
class Outliers:
    """``rows[..., columns] @ matrix.T``: the part of a layer whose inputs are large."""

    rows: ir.Value
    columns: ir.Value
    matrix: Matrix


@dataclass(frozen=True)
class Linear:
    """``rows @ weight.T`` with all that belongs to it, up to `output`.

    `rows` are the layer's before they are rounded to int8 in steps of `input_scale`.
    """

    product: Product
    rows: ir.Value
    input_scale: ir.Value | None
    outliers: Outliers | None
    bias: ir.Value | None
    output: ir.Value

    @property
    def matrix(self) -> Matrix:
        return self.product.matrix


def products(graph: ir.Graph) -> Iterator[Product]:
    """Every product with a stored weight, in order; also those that are a part of a layer."""
    for node in graph:
        if node.op_type == "MatMul" and (found := _product(node)):
            yield found


def linears(graph: ir.Graph) -> Iterator[Linear]:
    """Every linear layer of `graph`, in order."""
    for product in products(graph):
        if _outlier_part(product) is None:
            yield _linear(product)


def dimensions(value: ir.Value) -> tuple[int, ...]:
    """The shape of an initializer; its content is not read."""
    if value.const_value is None:
        raise ValueError(f"{value.name} is not an initializer")
    return tuple(value.const_value.shape.numpy())


def stored_array(value: ir.Value) -> NDArray[np.generic]:
    """The content of an initializer."""
    if value.const_value is None:
        raise ValueError(f"{value.name} is not an initializer")
    return value.const_value.numpy()


def lazy_weight(
    builder: GraphBuilder,
    name: str,
    sources: Sequence[ir.Value],
    compute: Callable[..., NDArray[np.generic]],
    dtype: ir.DataType,
    shape: tuple[int, ...],
) -> ir.Value:
    """An initializer computed of `sources` when it is written: memory holds one at a time."""

    def evaluate() -> ir.TensorProtocol:
        values = [stored_array(source) for source in sources]
        array = np.ascontiguousarray(compute(*values))
        if any(np.may_share_memory(array, value) for value in values):
            array = array.copy()
        values.clear()
        for source in sources:
            if isinstance(source.const_value, ir.ExternalTensor):
                source.const_value.release()  # unmap what is not read again
        return ir.tensor(array, dtype, name)

    return builder.weight(name, ir.LazyTensor(evaluate, dtype, ir.Shape(shape), name=name))


def transposed(builder: GraphBuilder, matrix: Matrix, path: str) -> ir.Value:
    """The matrix as fp32 ``[in, out]``, as the contract has it."""
    weight = matrix.weight
    if matrix.scale is not None:
        weight = builder.op("DequantizeLinear", f"{path}/dequantize", weight, matrix.scale, axis=0)
    elif weight.dtype != ir.DataType.FLOAT:
        weight = builder.op("Cast", f"{path}/Cast", weight, to=ir.DataType.FLOAT)
    return builder.op("Transpose", f"{path}/weight", weight, perm=[1, 0])


def _product(node: ir.Node) -> Product | None:
    rows, turned = node.inputs
    transpose = turned.producer() if turned else None
    if rows is None or transpose is None or transpose.op_type != "Transpose":
        return None
    (weight,) = transpose.inputs
    source = weight.producer() if weight else None
    if source is not None and source.op_type in ("Cast", "DequantizeLinear"):
        scale = source.inputs[1] if source.op_type == "DequantizeLinear" else None
        weight = source.inputs[0]
    else:
        scale = None
    if weight is None or weight.const_value is None:
        return None
    return Product(node, rows, Matrix(weight, scale))


def _linear(product: Product) -> Linear:
    rows, input_scale = _unrounded(product.rows)
    output = product.node.outputs[0]
    outliers = bias = None
    if (added := _added(output)) and (found := _outliers(added[1])):
        output, outliers = added[0], found
    if (added := _added(output)) and added[1].const_value is not None:
        output, bias = added
    return Linear(product, rows, input_scale, outliers, bias, output)


def _unrounded(rows: ir.Value) -> tuple[ir.Value, ir.Value | None]:
    """The rows before QuantizeLinear and DequantizeLinear, and the scale of these."""
    dequantize = rows.producer()
    codes = dequantize.inputs[0] if dequantize else None
    quantize = codes.producer() if codes else None
    if quantize is None or quantize.op_type != "QuantizeLinear" or quantize.inputs[0] is None:
        return rows, None
    return quantize.inputs[0], quantize.inputs[1]


def _added(value: ir.Value) -> tuple[ir.Value, ir.Value] | None:
    """The sum that `value` alone goes into as the first term, and the other term."""
    consumers = list(value.consumers())
    if len(consumers) != 1 or consumers[0].op_type != "Add" or consumers[0].inputs[0] is not value:
        return None
    other = consumers[0].inputs[1]
    return (consumers[0].outputs[0], other) if other else None


def _outliers(value: ir.Value) -> Outliers | None:
    node = value.producer()
    product = _product(node) if node and node.op_type == "MatMul" else None
    return _outlier_part(product) if product else None


def _outlier_part(product: Product) -> Outliers | None:
    gather = product.rows.producer()
    if gather is None or gather.op_type != "Gather":
        return None
    rows, columns = gather.inputs
    if rows is None or columns is None or columns.const_value is None:
        return None
    return Outliers(rows, columns, product.matrix)
