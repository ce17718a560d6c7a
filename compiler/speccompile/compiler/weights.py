"""Model weights between the stages: one safetensors file, read in place.

A linear weight is ``[out, in]`` in fp32, fp16 or int8; an int8 one has its scales, fp32 ``[out]``,
beside it under ``NAME.scale``. An ONNX graph refers to the bytes of this very file, so that
exporting copies nothing and tied weights are stored once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypedDict

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

__all__ = ["SCALE_SUFFIX", "WEIGHTS_FILE", "Weights"]

WEIGHTS_FILE = "weights.safetensors"
SCALE_SUFFIX = ".scale"

_DTYPES: dict[str, ir.DataType] = {
    "F32": ir.DataType.FLOAT,
    "F16": ir.DataType.FLOAT16,
    "I8": ir.DataType.INT8,
}


class Weights(Mapping[str, ir.ExternalTensor]):
    """The tensors of ``folder/weights.safetensors`` by name, memory-mapped when read."""

    def __init__(self, folder: Path) -> None:
        with (folder / WEIGHTS_FILE).open("rb") as file:
            header_size = int.from_bytes(file.read(8), "little")
            header: dict[str, _Entry] = json.loads(file.read(header_size))
        self._tensors = {
            name: _external(name, entry, 8 + header_size, folder)
            for name, entry in header.items()
            if name != "__metadata__"
        }

    def __getitem__(self, name: str) -> ir.ExternalTensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def array(self, name: str) -> NDArray[np.generic]:
        """The stored values, a read-only view of the file."""
        return self._tensors[name].numpy()

    def dense(self, name: str) -> NDArray[np.float32]:
        """The values the engine computes with, in fp32: int8 times its scales."""
        values = self.array(name).astype(np.float32)
        scale = self._tensors.get(name + SCALE_SUFFIX)
        return values if scale is None else values * scale.numpy()[:, None]


class _Entry(TypedDict):
    """What a safetensors header says of a tensor; the offsets count from the header's end."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def _external(name: str, entry: _Entry, data_start: int, folder: Path) -> ir.ExternalTensor:
    begin, end = entry["data_offsets"]
    return ir.ExternalTensor(
        WEIGHTS_FILE,
        data_start + begin,
        end - begin,
        _DTYPES[entry["dtype"]],
        shape=ir.Shape(entry["shape"]),
        name=name,
        base_dir=folder,
    )
