"""Statistics of a model's activations, by which int8 weights are chosen.

Of every linear layer, named by its weight without ``.weight`` (a tied head is
``model.embed_tokens``), they hold the largest magnitude of each input column, fp32 ``[in]``. Layers
that read the same rows have the same ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from speccompile.runtime.errors import SpeccompileError

__all__ = ["Statistics", "input_peaks", "read_statistics", "write_statistics"]

Statistics = Mapping[str, NDArray[np.float32]]

_FILE = "calibration.safetensors"


def write_statistics(folder: Path, statistics: Statistics) -> None:
    """Write ``folder/calibration.safetensors``."""
    content = {name: np.ascontiguousarray(peaks) for name, peaks in statistics.items()}
    save_file(content, folder / _FILE)


def read_statistics(folder: Path) -> Statistics:
    """What `write_statistics` wrote."""
    return load_file(folder / _FILE)


def input_peaks(statistics: Statistics, linear: str, width: int) -> NDArray[np.float32]:
    """The peaks [width] of the layer's input; SpeccompileError if they are absent or unusable."""
    peaks = statistics.get(linear)
    if peaks is None:
        raise SpeccompileError(
            f"{linear}: has no calibration, which outliers, smoothing and static activations need; "
            "calibrate the model first"
        )
    if peaks.shape != (width,) or not np.isfinite(peaks).all():
        raise SpeccompileError(
            f"{linear}: its calibration is not {width} finite peaks, one for every input column; "
            "calibrate the model again"
        )
    return peaks
