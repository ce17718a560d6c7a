"""Arrays in a device's memory and in pinned memory of the host: named, placed once, never moved."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.device import ALIGNMENT, Device
from speccompile.runtime.errors import EngineError

__all__ = ["DTYPES", "Array", "Arrays", "DType", "Staging", "as_float32", "host_array"]

DType = Literal["float32", "float16", "bfloat16", "int64", "int32", "bool", "uint8"]

DTYPES: tuple[DType, ...] = get_args(DType)

_SIZES = {"float32": 4, "float16": 2, "bfloat16": 2, "int64": 8, "int32": 4, "bool": 1, "uint8": 1}


@dataclass(frozen=True)
class Array:
    """What has to be known of an array to place it."""

    dtype: DType
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """Bytes."""
        return math.prod(self.shape) * _SIZES[self.dtype]


class Arrays(Mapping[str, int]):
    """The addresses of arrays that one allocation holds, by their names."""

    def __init__(self, device: Device, arrays: Mapping[str, Array], *, what: str) -> None:
        """Raises EngineError, saying `what` needs how much, where the device has less free."""
        self._offsets, total = _offsets(arrays)
        free = device.memory().free
        if total > free:
            raise EngineError(
                f"{device.name}: {what} needs {_gib(total)} of its memory, and {_gib(free)} is "
                "free; free some, or build with a smaller context.length"
            )
        self._device = device
        self._total = total
        self._base = device.allocate(total)

    def __getitem__(self, name: str) -> int:
        return self._base + self._offsets[name]

    def clear(self) -> None:
        """Enqueue that all are zero again."""
        self._device.clear(self._base, self._total)

    def __iter__(self) -> Iterator[str]:
        return iter(self._offsets)

    def __len__(self) -> int:
        return len(self._offsets)


class Staging:
    """Pinned places of the host, through which arrays of a device are written and read.

    A place is free again when the stream has come past its copy: wait between two of one name.
    """

    def __init__(self, device: Device, arrays: Mapping[str, Array], at: Mapping[str, int]) -> None:
        """`at` has the addresses of those arrays on the device."""
        self._device = device
        self._arrays = dict(arrays)
        self._at = at
        self._offsets, total = _offsets(arrays)
        self._base = device.allocate_pinned(total)

    def put(self, name: str, values: NDArray[np.generic]) -> None:
        """Enqueue that the array begins with these values."""
        place = self._place(name, values.nbytes)
        host_array(place, values.nbytes)[:] = np.ascontiguousarray(values).reshape(-1).view("u1")
        self._device.upload(self._at[name], place, values.nbytes)

    def get(self, name: str, offset: int, size: int) -> NDArray[np.uint8]:
        """Enqueue a copy of `size` bytes from `offset` on; what it returns fills up in time."""
        place = self._place(name, size)
        if size:
            self._device.download(place, self._at[name] + offset, size)
        return host_array(place, size)

    def _place(self, name: str, size: int) -> int:
        if size > self._arrays[name].size:
            raise ValueError(f"{size} bytes are more than {name} has")
        return self._base + self._offsets[name]


def host_array(address: int, size: int) -> NDArray[np.uint8]:
    """The bytes at an address of the host."""
    return np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))


def as_float32(data: NDArray[np.uint8], dtype: DType) -> NDArray[np.float32]:
    """Bytes of floating-point numbers as fp32, in memory of their own."""
    if dtype == "bfloat16":  # the upper half of an fp32
        return (data.view(np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)
    if dtype not in ("float32", "float16"):
        raise ValueError(f"{dtype} is no floating-point type")
    return data.view(dtype).astype(np.float32)


def _offsets(arrays: Mapping[str, Array]) -> tuple[dict[str, int], int]:
    """Where each begins, one behind the other, and what all take."""
    offsets: dict[str, int] = {}
    total = 0
    for name, array in arrays.items():
        offsets[name] = total
        total += -(-array.size // ALIGNMENT) * ALIGNMENT
    return offsets, total


def _gib(size: int) -> str:
    return f"{size / 2**30:.2f} GiB"
