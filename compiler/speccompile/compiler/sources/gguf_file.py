"""A GGUF file, opened: its keys and values, and its tensors as views of the mapped file.

The file is not trusted. Whatever its bytes claim, reading it ends in a `GGUFFile` or in a
SourceError that says at which offset it goes wrong; no claimed length is believed before the bytes
are there, and only the first `_HEADER_LIMIT` bytes are ever turned into objects.
https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import numpy as np
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType
from numpy.typing import NDArray

from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["GGUFFile", "StoredTensor", "read_gguf"]

_VERSIONS = (2, 3)
_HEADER_LIMIT = 64 << 20  # bytes; the largest vocabularies need about 10 MB
_DIMENSION_LIMIT = 4  # GGML_MAX_DIMS
_STRING, _ARRAY, _BOOL = 8, 9, 7
_NUMBERS = {
    **{0: "u1", 1: "i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4", 6: "<f4", _BOOL: "u1"},
    **{10: "<u8", 11: "<i8", 12: "<f8"},
}
"""The numeric types of values, by their number in a file, as numpy writes them."""

_Type = GGMLQuantizationType
_ELEMENTS = {
    **{_Type.F32: "<f4", _Type.F16: "<f2", _Type.F64: "<f8"},
    **{_Type.I8: "i1", _Type.I16: "<i2", _Type.I32: "<i4", _Type.I64: "<i8"},
}
"""Encodings that numpy knows; the others stay bytes, block by block."""

T = TypeVar("T")


@dataclass(frozen=True)
class StoredTensor:
    """A tensor in its encoding, slowest-varying extent first.

    `data` is a writable view of the mapped file (writing copies the page and leaves the file): of
    `shape` where numpy knows the encoding, else of bytes, whose last extent is a row's size. Either
    is what `gguf.dequantize` takes.
    """

    name: str
    shape: tuple[int, ...]
    encoding: GGMLQuantizationType
    data: NDArray[Any]


@dataclass(frozen=True)
class GGUFFile:
    metadata: Metadata
    tensors: Mapping[str, StoredTensor]


def read_gguf(path: Path) -> GGUFFile:
    """Open a little-endian GGUF file of version 2 or 3.

    Raises SourceError, naming the offset, for any other file, and for one that is cut or malformed.
    """
    try:
        # Copy-on-write, so that float32 tensors are writable arrays straight over the file.
        mapped: NDArray[np.uint8] = np.memmap(path, np.uint8, mode="c").view(np.ndarray)
    except (OSError, ValueError) as error:  # ValueError: an empty file has no mapping
        raise SourceError(f"{path}: not readable as GGUF ({error})") from error
    cursor = _Cursor(path, mapped[:_HEADER_LIMIT].data)
    _check_version(cursor)
    tensor_count, key_count = cursor.number("<u8"), cursor.number("<u8")
    values = _named(cursor, "key", key_count, _value)
    infos = _named(cursor, "tensor", tensor_count, _tensor_info)
    alignment = values.get("general.alignment", 32)
    if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
        cursor.fail(f"general.alignment must be a power of two, not {alignment!r:.40}")
    start = -(-cursor.offset // alignment) * alignment
    tensors: dict[str, StoredTensor] = {}
    for name, info in infos.items():
        if info.offset % alignment or start + info.offset + info.bytes > len(mapped):
            cursor.fail(
                f"tensor {name!r:.80} of {info.bytes} bytes at {start + info.offset} is not "
                f"aligned to {alignment} inside the file's {len(mapped)} bytes",
                info.described_at,
            )
        stored = mapped[start + info.offset :][: info.bytes]
        data = stored.view(_ELEMENTS.get(info.encoding, "u1")).reshape(info.stored_shape)
        tensors[name] = StoredTensor(name, info.shape, info.encoding, data)
    return GGUFFile(Metadata(str(path), values), tensors)


@dataclass(frozen=True)
class _TensorInfo:
    shape: tuple[int, ...]
    encoding: GGMLQuantizationType
    offset: int  # from the first tensor's
    described_at: int

    @property
    def row_bytes(self) -> int:
        block, size = GGML_QUANT_SIZES[self.encoding]
        return (self.shape[-1] if self.shape else 1) // block * size

    @property
    def bytes(self) -> int:
        return math.prod(self.shape[:-1]) * self.row_bytes

    @property
    def stored_shape(self) -> tuple[int, ...]:
        return self.shape if self.encoding in _ELEMENTS else (*self.shape[:-1], self.row_bytes)


class _Cursor:
    """A position in the header; every read is checked against its end."""

    def __init__(self, path: Path, header: memoryview) -> None:
        self._path = path
        self._header = header
        self.offset = 0

    def fail(self, reason: str, offset: int | None = None) -> NoReturn:
        at = self.offset if offset is None else offset
        raise SourceError(
            f"{self._path}: not readable as GGUF (at byte {at}: {reason}); fetch the file again"
        )

    def number(self, kind: str) -> int:
        number: int = self.numbers(kind, 1)[0]
        return number

    def numbers(self, kind: str, count: int) -> list[Any]:
        """`count` numbers of a numpy type, as Python's own."""
        size = count * np.dtype(kind).itemsize
        if size > len(self._header) - self.offset:
            self._cut(f"{count} numbers")
        values: list[Any] = np.frombuffer(self._header, kind, count, self.offset).tolist()
        self.offset += size
        return values

    def string(self) -> str:
        return self.strings(1)[0]

    def strings(self, count: int) -> list[str]:
        """`count` strings; of a vocabulary a few hundred thousand, hence one plain loop."""
        header, offset, end = self._header, self.offset, len(self._header)
        if count > (end - offset) // 8:
            self._cut(f"{count} strings")
        length_at = struct.Struct("<Q").unpack_from
        found: list[str] = []
        try:
            for _ in range(count):
                (length,) = length_at(header, offset)
                if length > end - offset - 8:
                    self.offset = offset
                    self._cut(f"a string of {length} bytes")
                start, offset = offset + 8, offset + 8 + length
                found.append(str(header[start:offset], "utf-8"))
        except struct.error:
            self.offset = offset
            self._cut("a string")
        except UnicodeDecodeError:
            self.fail("a string is not UTF-8", offset)
        self.offset = offset
        return found

    def _cut(self, what: str) -> NoReturn:
        limited = len(self._header) == _HEADER_LIMIT
        self.fail(f"{what} would pass the {'limit' if limited else 'end'} of {len(self._header)}")


def _check_version(cursor: _Cursor) -> None:
    if bytes(cursor.numbers("u1", 4)) != b"GGUF":
        cursor.fail("does not begin with GGUF", 0)
    version = cursor.number("<u4")
    if version in _VERSIONS:
        return
    if version & 0xFFFF == 0:
        cursor.fail("it is big-endian; only little-endian files are supported", 4)
    cursor.fail(f"version {version} is not supported; supported: 2, 3", 4)


def _named(cursor: _Cursor, what: str, count: int, read: Callable[[_Cursor], T]) -> dict[str, T]:
    """`count` entries that begin with a name, which may not occur twice."""
    entries: dict[str, T] = {}
    for _ in range(count):
        start = cursor.offset
        name = cursor.string()
        if name in entries:
            cursor.fail(f"{what} {name!r:.80} occurs twice", start)
        entries[name] = read(cursor)
    return entries


def _value(cursor: _Cursor) -> object:
    kind = cursor.number("<u4")
    if kind != _ARRAY:
        return _items(cursor, kind, 1)[0]
    return _items(cursor, cursor.number("<u4"), cursor.number("<u8"))


def _items(cursor: _Cursor, kind: int, count: int) -> list[Any]:
    if kind == _STRING:
        return cursor.strings(count)
    if kind == _ARRAY:
        cursor.fail("an array of arrays is not supported")
    if kind not in _NUMBERS:
        cursor.fail(f"values of type {kind} are unknown")
    start = cursor.offset
    values = cursor.numbers(_NUMBERS[kind], count)
    if kind != _BOOL:
        return values
    if any(value > 1 for value in values):
        cursor.fail("a truth value is neither 0 nor 1", start)
    return [value == 1 for value in values]


def _tensor_info(cursor: _Cursor) -> _TensorInfo:
    start = cursor.offset
    dimensions = cursor.number("<u4")
    if dimensions > _DIMENSION_LIMIT:
        cursor.fail(f"a tensor of {dimensions} dimensions; at most {_DIMENSION_LIMIT}", start)
    # The file lists extents with the fastest-varying first.
    shape = tuple(reversed(cursor.numbers("<u8", dimensions)))
    number = cursor.number("<u4")
    try:
        encoding = GGMLQuantizationType(number)
        block, _ = GGML_QUANT_SIZES[encoding]
    except (ValueError, KeyError):
        cursor.fail(f"tensor type {number} is unknown", start)
    if 0 in shape or (shape[-1] if shape else 1) % block:
        cursor.fail(f"a tensor of {list(shape)} cannot be stored as {encoding.name}", start)
    return _TensorInfo(shape, encoding, cursor.number("<u8"), start)
