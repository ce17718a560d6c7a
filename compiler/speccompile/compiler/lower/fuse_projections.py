"""Linear layers that read the same rows become one: q, k and v; gate and up.

One wide matrix product streams the same bytes as several narrow ones, but wakes the threads once.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import onnx_ir as ir

from speccompile.compiler.graph import GraphBuilder
from speccompile.compiler.lower.linear import Linear, linears, stored_array
from speccompile.compiler.lower.passes import Pass

__all__ = ["FUSE_PROJECTIONS"]


def _fuse(model: ir.Model) -> int:
    groups: dict[ir.Value, list[Linear]] = defaultdict(list)
    for linear in linears(model.graph):
        groups[linear.rows].append(linear)
    fused = [group for group in groups.values() if len(group) > 1]
    for group in fused:
        _fuse_group(model.graph, group)
    return len(fused)


def _fuse_group(graph: ir.Graph, group: list[Linear]) -> None:
    first, builder = group[0], GraphBuilder()
    parent = str(first.node.name).rpartition("/")[0]
    path = f"{parent}/" + "+".join(str(linear.node.name).rpartition("/")[2] for linear in group)
    arrays = [stored_array(linear.weight) for linear in group]
    weight = builder.constant(f"{path}.weight", np.concatenate(arrays))
    scales = [stored_array(linear.scale) for linear in group if linear.scale is not None]
    if scales:
        scale = builder.constant(f"{path}.scale", np.concatenate(scales))
        weight = builder.op("DequantizeLinear", f"{path}/dequantize", weight, scale, axis=0)
    elif weight.dtype != ir.DataType.FLOAT:
        weight = builder.op("Cast", f"{path}/Cast", weight, to=ir.DataType.FLOAT)
    weight = builder.op("Transpose", f"{path}/weight", weight, perm=[1, 0])
    product = builder.op("MatMul", path, first.rows, weight)
    widths = builder.constant(f"{path}.widths", np.array([len(array) for array in arrays]))
    parts = builder.split("Split", f"{path}/Split", product, widths, outputs=len(group), axis=-1)
    builder.splice(graph, first.node)
    for linear, part in zip(group, parts, strict=True):
        linear.output.replace_all_uses_with(part)


FUSE_PROJECTIONS = Pass("fuse_projections", _fuse, requires=frozenset({"MatMul"}))
