"""Write the weights file tensor by tensor, so that a model need not fit into memory."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from speccompile.compiler.weights import DTYPES, PADDING_PREFIX, WEIGHTS_FILE, TensorEntry

__all__ = ["WeightsWriter"]

_ALIGNMENT = 64
_ENTRY_ROOM = 240  # the header's entry of a matrix and of the padding before it, less the name
_NAMES = {dtype: name for name, dtype in DTYPES.items()}


class WeightsWriter:
    """A context that writes ``folder/weights.safetensors``: nothing is left of it after an error.

    The header comes first in the file, but what type a tensor fits is known only once it is read:
    room is left for it by the `names` to come, and the rest of that room filled with spaces. Data
    begins at multiples of 64 bytes, so that engines can map it. The same tensors in the same order
    give the same bytes. Raises OSError where the file cannot be written.
    """

    def __init__(self, folder: Path, names: Collection[str]) -> None:
        self._path = folder / WEIGHTS_FILE
        room = sum(len(json.dumps(name)) + _ENTRY_ROOM for name in names)
        self._data_start = 8 + room + -(8 + room) % _ALIGNMENT
        self._header: dict[str, TensorEntry] = {}

    def __enter__(self) -> Self:
        self._file = self._path.open("wb")
        self._file.seek(self._data_start)
        return self

    def add(self, name: str, values: NDArray[np.generic]) -> None:
        """Append one tensor, of a type in `DTYPES`."""
        padding = -self._file.tell() % _ALIGNMENT
        if padding:
            filler = np.zeros(padding, np.uint8)
            self._append(f"{PADDING_PREFIX}{len(self._header)}", "U8", filler)
        self._append(name, _NAMES[ir.DataType.from_numpy(values.dtype)], values)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            with self._file:
                if kind is None:
                    self._write_header()
        except BaseException:
            self._path.unlink(missing_ok=True)
            raise
        if kind is not None:
            self._path.unlink(missing_ok=True)

    def _append(self, name: str, dtype: str, values: NDArray[np.generic]) -> None:
        begin = self._file.tell() - self._data_start
        # As bytes: the buffer protocol has no bfloat16.
        self._file.write(np.ascontiguousarray(values).reshape(-1).view(np.uint8).data)
        self._header[name] = {
            "dtype": dtype,
            "shape": list(values.shape),
            "data_offsets": (begin, begin + values.nbytes),
        }

    def _write_header(self) -> None:
        room = self._data_start - 8
        text = json.dumps(self._header, separators=(",", ":")).encode()
        if len(text) > room:
            raise ValueError(f"{self._path}: {len(text)} bytes of header pass the room of {room}")
        self._file.seek(0)
        self._file.write(room.to_bytes(8, "little") + text.ljust(room))
