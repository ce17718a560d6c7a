"""Linear layers of one kind that read the same rows become one: q, k and v; gate and up.

One wide matrix product streams the same bytes as several narrow ones, but wakes the threads once.
The fused weights are read when the graph is written, one at a time. Where the output of one of them
is too large for fp16, so is that of the whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence

import numpy as np
import onnx_ir as ir

from speccompile.compiler.contract import KEEP_FP32_KEY
from speccompile.compiler.graph import GraphBuilder
from speccompile.compiler.lower.linear import (
    Linear,
    Matrix,
    Outliers,
    dimensions,
    lazy_weight,
    linears,
    stored_array,
    transposed,
)
from speccompile.compiler.lower.passes import Pass

__all__ = ["FUSE_PROJECTIONS"]


def _fuse(model: ir.Model) -> int:
    groups: dict[Hashable, list[Linear]] = defaultdict(list)
    for linear in linears(model.graph):
        groups[_kind(linear)].append(linear)
    fused = [group for group in groups.values() if len(group) > 1]
    for group in fused:
        _fuse_group(model.graph, group)
    return len(fused)


def _kind(linear: Linear) -> Hashable:
    """What layers must have in common to be one: rows, storage and parts."""
    outliers = linear.outliers
    return (
        linear.rows,
        linear.bias is None,
        _storage(linear.matrix),
        _content(linear.input_scale),
        outliers
        and (
            outliers.rows is linear.rows,
            _content(outliers.columns),
            _storage(outliers.matrix),
        ),
    )


def _storage(matrix: Matrix) -> Hashable:
    return matrix.weight.dtype, matrix.scale is None


def _content(value: ir.Value | None) -> bytes | None:
    return None if value is None else stored_array(value).tobytes()


def _fuse_group(graph: ir.Graph, group: Sequence[Linear]) -> None:
    first, builder = group[0], GraphBuilder()
    parent = str(first.product.node.name).rpartition("/")[0]
    names = (str(linear.product.node.name).rpartition("/")[2] for linear in group)
    path = f"{parent}/{'+'.join(names)}"
    matrix = _stacked_matrix(builder, path, [linear.matrix for linear in group])
    # All members round their rows alike: the first one's nodes do it for all.
    result = builder.op("MatMul", path, first.product.rows, transposed(builder, matrix, path))
    _mark(result, [linear.product.node.outputs[0] for linear in group])
    outliers = [linear.outliers for linear in group if linear.outliers]
    if outliers:
        result = _add_outliers(builder, path, result, outliers)
    biases = [linear.bias for linear in group if linear.bias]
    if biases:
        result = builder.op(
            "Add", f"{path}/bias", result, _stacked(builder, f"{path}.bias", biases)
        )
        _mark(result, [linear.output for linear in group])
    widths = builder.constant(
        f"{path}.widths", np.array([dimensions(linear.matrix.weight)[0] for linear in group])
    )
    parts = builder.split("Split", f"{path}/Split", result, widths, outputs=len(group), axis=-1)
    builder.splice(graph, first.product.node)
    for linear, part in zip(group, parts, strict=True):
        linear.output.replace_all_uses_with(part)


def _mark(fused: ir.Value, members: Iterable[ir.Value]) -> None:
    """Give the node of `fused` the largest `KEEP_FP32_KEY` among those of `members`."""
    nodes = [node for value in members if (node := value.producer())]
    marks = [mark for node in nodes if (mark := node.metadata_props.get(KEEP_FP32_KEY))]
    if marks and (node := fused.producer()):
        node.metadata_props[KEEP_FP32_KEY] = max(marks, key=float)


def _add_outliers(
    builder: GraphBuilder, path: str, result: ir.Value, parts: Sequence[Outliers]
) -> ir.Value:
    """Add the product with the columns apart, which all of `parts` have in common."""
    node = f"{path}/outliers"
    apart = builder.op("Gather", node, parts[0].rows, parts[0].columns, axis=-1)
    matrix = _stacked_matrix(builder, f"{path}.outliers", [part.matrix for part in parts])
    apart = builder.op("MatMul", f"{node}/MatMul", apart, transposed(builder, matrix, node))
    return builder.op("Add", f"{path}/with_outliers", result, apart)


def _stacked_matrix(builder: GraphBuilder, name: str, matrices: Sequence[Matrix]) -> Matrix:
    weight = _stacked(builder, f"{name}.weight", [matrix.weight for matrix in matrices])
    scales = [matrix.scale for matrix in matrices if matrix.scale]
    return Matrix(weight, _stacked(builder, f"{name}.scale", scales) if scales else None)


def _stacked(builder: GraphBuilder, name: str, values: Sequence[ir.Value]) -> ir.Value:
    """The initializers on top of each other, along their first axis."""
    dtype = values[0].dtype
    if dtype is None:
        raise ValueError(f"{values[0].name} has no type")
    height = sum(dimensions(value)[0] for value in values)
    shape = height, *dimensions(values[0])[1:]
    return lazy_weight(builder, name, values, lambda *arrays: np.concatenate(arrays), dtype, shape)


FUSE_PROJECTIONS = Pass("fuse_projections", _fuse)
