"""Arrays of a host on a device and back, over and over in the same memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.launches import LogitsType
from speccompile.runtime.device import ALIGNMENT, Device
from speccompile.runtime.device_memory import as_float32, host_array

__all__ = ["Arena", "stored", "widened"]

_SECONDS = 60.0


class Arena:
    """`size` bytes of a device, beside as many pinned ones."""

    def __init__(self, device: Device, size: int) -> None:
        self._device, self._size = device, size
        self._base = device.allocate(size)
        self._pinned = device.allocate_pinned(size)
        self._arrived = device.event()
        self._places: dict[str, tuple[int, NDArray[Any]]] = {}
        self._end = 0

    def place(
        self, arrays: Mapping[str, NDArray[Any]], skew: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Enqueue that these are on the device, in the place of what was there; returns where.

        An array begins `skew` bytes behind a multiple of `ALIGNMENT`.
        """
        self.settle()
        self._places, self._end = {}, 0
        for name, array in arrays.items():
            start = -(-self._end // ALIGNMENT) * ALIGNMENT + (skew or {}).get(name, 0)
            self._end = start + array.nbytes
            if self._end > self._size:
                raise ValueError(f"an arena of {self._size} bytes has no room for {name}")
            self._places[name] = start, array
            bytes_of = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
            host_array(self._pinned + start, array.nbytes)[:] = bytes_of
        self._device.upload(self._base, self._pinned, self._end)
        return {name: self._base + start for name, (start, _) in self._places.items()}

    def read(self, *names: str) -> dict[str, NDArray[Any]]:
        """The arrays of these names, by default all, as they are when the stream has come here."""
        wanted = names or tuple(self._places)
        for name in wanted:
            start, array = self._places[name]
            self._device.download(self._pinned + start, self._base + start, array.nbytes)
        self.settle()
        found: dict[str, NDArray[Any]] = {}
        for name in wanted:
            start, array = self._places[name]
            data = host_array(self._pinned + start, array.nbytes)
            found[name] = data.copy().view(array.dtype).reshape(array.shape)
        return found

    def settle(self) -> None:
        """Wait until the device has nothing left to do."""
        self._arrived.record()
        self._arrived.wait(_SECONDS, "the check")


def stored(values: NDArray[np.float32], logits_type: LogitsType) -> NDArray[Any]:
    """Logits as memory has them; bfloat16, which numpy lacks, as the upper halves of fp32."""
    if logits_type == "bfloat16":
        return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    with np.errstate(over="ignore"):
        return values.astype(logits_type)


def widened(logits: NDArray[Any], logits_type: LogitsType) -> NDArray[np.float32]:
    """The same numbers in fp32."""
    flat = np.ascontiguousarray(logits).reshape(-1).view(np.uint8)
    return as_float32(flat, logits_type).reshape(logits.shape)
