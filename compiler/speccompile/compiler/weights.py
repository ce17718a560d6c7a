"""Model weights between the stages: one safetensors file, written once and read in place.

A linear weight NAME is ``[out, in]`` in fp32, fp16, bf16 or int8. Beside an int8 one stand

* ``NAME.scale`` fp32 ``[out]``: what its rows are multiplied by;
* ``NAME.outliers`` int64 ``[k]`` and ``NAME.outlier_values`` fp16 or fp32 ``[out, k]``: the columns
  held apart, where there are any; they are 0 in NAME;
* ``NAME.input_scale`` fp32 ``[]``: the step its input is rounded with, where that is fixed.

An ONNX graph refers to the bytes of this very file, so that exporting copies nothing and tied
weights are stored once.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TypedDict

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

__all__ = [
    "DTYPES",
    "INPUT_SCALE_SUFFIX",
    "OUTLIERS_SUFFIX",
    "OUTLIER_VALUES_SUFFIX",
    "PADDING_PREFIX",
    "SCALE_SUFFIX",
    "WEIGHTS_FILE",
    "TensorEntry",
    "Weights",
]

WEIGHTS_FILE = "weights.safetensors"
SCALE_SUFFIX = ".scale"
INPUT_SCALE_SUFFIX = ".input_scale"
OUTLIERS_SUFFIX = ".outliers"
OUTLIER_VALUES_SUFFIX = ".outlier_values"

PADDING_PREFIX = "__padding."
"""Entries of this name only bring the next tensor to its alignment: the format allows no holes."""

DTYPES: dict[str, ir.DataType] = {
    "F32": ir.DataType.FLOAT,
    "F16": ir.DataType.FLOAT16,
    "BF16": ir.DataType.BFLOAT16,
    "I8": ir.DataType.INT8,
    "I64": ir.DataType.INT64,
}


class TensorEntry(TypedDict):
    """What a safetensors header says of a tensor; the offsets count from the header's end."""

    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class Weights(Mapping[str, ir.ExternalTensor]):
    """The tensors of ``folder/weights.safetensors`` by name, memory-mapped when read."""

    def __init__(self, folder: Path) -> None:
        with (folder / WEIGHTS_FILE).open("rb") as file:
            header_size = int.from_bytes(file.read(8), "little")
            header: dict[str, TensorEntry] = json.loads(file.read(header_size))
        self._tensors = {
            name: _external(name, entry, 8 + header_size, folder)
            for name, entry in header.items()
            if name != "__metadata__" and not name.startswith(PADDING_PREFIX)
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
        """What the engine computes with, in fp32: int8 times its scales, and its outliers."""
        values = self.array(name).astype(np.float32)
        if name + SCALE_SUFFIX in self:
            values *= self[name + SCALE_SUFFIX].numpy()[:, None]
        if name + OUTLIERS_SUFFIX in self:
            columns = self[name + OUTLIERS_SUFFIX].numpy()
            values[:, columns] = self[name + OUTLIER_VALUES_SUFFIX].numpy()
        return values


def _external(name: str, entry: TensorEntry, data_start: int, folder: Path) -> ir.ExternalTensor:
    begin, end = entry["data_offsets"]
    return ir.ExternalTensor(
        WEIGHTS_FILE,
        data_start + begin,
        end - begin,
        DTYPES[entry["dtype"]],
        shape=ir.Shape(entry["shape"]),
        name=name,
        base_dir=folder,
    )
