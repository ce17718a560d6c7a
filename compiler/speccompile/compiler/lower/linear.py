"""Recognize the contract's linear layers: a MatMul with a stored, perhaps quantized, weight."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

__all__ = ["Linear", "linears", "stored_array"]


@dataclass(frozen=True)
class Linear:
    """``rows @ weight.T``; `weight` is the initializer ``[out, in]``, `scale` is that of int8."""

    node: ir.Node
    rows: ir.Value
    weight: ir.Value
    scale: ir.Value | None
    weight_nodes: tuple[ir.Node, ...]

    @property
    def output(self) -> ir.Value:
        return self.node.outputs[0]


def linears(graph: ir.Graph) -> Iterator[Linear]:
    """Every linear layer of `graph`, in order."""
    for node in graph:
        if node.op_type == "MatMul" and (found := _match(node)):
            yield found


def stored_array(value: ir.Value) -> NDArray[np.generic]:
    """The content of an initializer."""
    if value.const_value is None:
        raise ValueError(f"{value.name} is not an initializer")
    return value.const_value.numpy()


def _match(node: ir.Node) -> Linear | None:
    rows, transposed = node.inputs
    transpose = transposed.producer() if transposed else None
    if rows is None or transpose is None or transpose.op_type != "Transpose":
        return None
    (weight,) = transpose.inputs
    if weight is None:
        return None
    source = weight.producer()
    if source is None:
        return Linear(node, rows, weight, None, (transpose,))
    weight = source.inputs[0]
    if source.op_type not in ("Cast", "DequantizeLinear") or weight is None:
        return None
    scale = source.inputs[1] if source.op_type == "DequantizeLinear" else None
    return Linear(node, rows, weight, scale, (transpose, source))
