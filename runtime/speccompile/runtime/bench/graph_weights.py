"""The weights in an ONNX graph, and who reads them; found without onnx, which no host needs.

Of the file's messages (onnx.proto) these fields are looked at: ModelProto.graph 7; GraphProto.node
1, initializer 5; NodeProto.input 1, op_type 4; TensorProto.dims 1, data_type 2, name 8.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path

from speccompile.runtime.errors import EngineError

__all__ = ["BFLOAT16", "FLOAT", "FLOAT16", "GraphWeight", "read_weights"]

FLOAT, FLOAT16, BFLOAT16 = 1, 10, 16
"""Types of numbers (TensorProto.DataType)."""

_BYTES = {FLOAT: 4, 2: 1, 3: 1, 6: 4, 7: 8, 9: 1, FLOAT16: 2, 11: 8, BFLOAT16: 2}

_VARINT, _EIGHT, _BLOCK, _FOUR = 0, 1, 2, 5  # the kinds of fields


@dataclass(frozen=True)
class GraphWeight:
    """`count` stored numbers of type `dtype`; `readers` are the operators that take them, each with
    the place among its inputs."""

    dtype: int
    count: int
    readers: frozenset[tuple[str, int]]

    @property
    def number_bytes(self) -> int:
        """Of one number as it is stored."""
        return _BYTES[self.dtype]


def read_weights(graph: Path) -> dict[str, GraphWeight]:
    """The initializers of the graph in a file, by name. Raises EngineError for another file."""
    try:
        model = graph.read_bytes()
        (main,) = (value for number, value in _fields(model) if number == 7)
        return dict(_weights(_block(main)))
    except OSError as error:
        raise EngineError(f"{graph}: cannot be read: {error.strerror}") from error
    except (ValueError, IndexError, KeyError) as error:
        raise EngineError(f"{graph}: is no ONNX graph; build the artifact again") from error


def _weights(graph: bytes) -> Iterator[tuple[str, GraphWeight]]:
    tensors: list[bytes] = []
    readers: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for number, value in _fields(graph):
        if number == 1:
            operator, inputs = _node(_block(value))
            for index, name in enumerate(inputs):
                readers[name].add((operator, index))
        elif number == 5:
            tensors.append(_block(value))
    for tensor in tensors:
        name, dtype, shape = _tensor(tensor)
        weight = GraphWeight(dtype, prod(shape), frozenset(readers[name]))
        yield name, weight


def _node(node: bytes) -> tuple[str, list[str]]:
    operator, inputs = "", list[str]()
    for number, value in _fields(node):
        if number == 1:
            inputs.append(_block(value).decode())
        elif number == 4:
            operator = _block(value).decode()
    return operator, inputs


def _tensor(tensor: bytes) -> tuple[str, int, list[int]]:
    name, dtype, shape = "", 0, list[int]()
    for number, value in _fields(tensor):
        if number == 1:
            shape += [value] if isinstance(value, int) else _packed(value)
        elif number == 2 and isinstance(value, int):
            dtype = value
        elif number == 8:
            name = _block(value).decode()
    if dtype not in _BYTES:
        raise ValueError(f"unknown type {dtype}")
    return name, dtype, shape


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message of protocol buffers: number and value."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        size = {_EIGHT: 8, _FOUR: 4}.get(kind)
        if kind == _BLOCK:
            size, at = _varint(message, at)
        if size is None or at + size > len(message):
            raise ValueError("not a message")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number at a place, and where it ends."""
    value = shift = 0
    while True:
        byte = message[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at


def _packed(block: bytes) -> list[int]:
    values, at = list[int](), 0
    while at < len(block):
        value, at = _varint(block, at)
        values.append(value)
    return values


def _block(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number where a block should be")
    return value
