"""Two graphs over the same weights: what the second has in common with the first is stored once.

ONNX lets a tensor name the file of its bytes, so long as that lies beside the graph. So the second
graph is written into the folder of the first.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import onnx_ir as ir
from onnx_ir.external_data import convert_tensors_to_external

__all__ = ["write_beside"]

_SMALL = 256
"""Bytes up to which a tensor stays in the graph, as in every graph that is saved."""

_Content = tuple[ir.DataType, tuple[object, ...], bytes]


def write_beside(graph: Path, first: Path, name: str) -> None:
    """Write the graph of a file as `name` beside another that keeps its weights in a file of its
    own; what is not there goes into ``name.data``."""
    model, folder = ir.load(graph), first.parent
    stored = {
        _content(value.const_value): value.const_value
        for value in ir.load(first).graph.initializers.values()
        if isinstance(value.const_value, ir.ExternalTensor)
    }
    own: list[ir.Value] = []
    for value in model.graph.initializers.values():
        tensor = value.const_value
        if tensor is None or tensor.nbytes <= _SMALL:
            continue
        if there := stored.get(_content(tensor)):
            value.const_value = ir.ExternalTensor(
                there.location,
                there.offset,
                there.length,
                tensor.dtype,
                shape=ir.Shape(tensor.numpy().shape),
                name=str(value.name),
                base_dir=folder,
            )
        else:
            own.append(value)
    tensors = [value.const_value for value in own if value.const_value is not None]
    written = convert_tensors_to_external(tensors, folder, f"{name}.data")
    for value, tensor in zip(own, written, strict=True):
        value.const_value = tensor
    ir.save(model, folder / name)


def _content(tensor: ir.TensorProtocol) -> _Content:
    return tensor.dtype, tuple(tensor.shape), sha256(tensor.tobytes()).digest()
