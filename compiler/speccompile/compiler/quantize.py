"""Bring a checkpoint's tensors to the precision a role asks for, and write them once.

* ``fp32``, ``fp16``, ``bf16``: matrices are rounded to that type, to nearest even. One that holds
  a value beyond its range is kept in fp32 and named in ``quantize.json``: never a silent infinity.
* ``int8``: LLM.int8's row-wise absmax (arXiv 2208.07339, section 3): every output row of a matrix
  is scaled so that its largest magnitude becomes 127. With statistics of the activations, columns
  that meet outliers are held apart in fp16, and the rounding of the layer's input can be fixed.
* ``mixed``: one of these for each matrix, by its name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.calibration import Statistics, input_peaks
from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from speccompile.compiler.int8 import quantize_int8
from speccompile.compiler.precision import tensor_precisions
from speccompile.compiler.weights import (
    INPUT_SCALE_SUFFIX,
    OUTLIER_VALUES_SUFFIX,
    OUTLIERS_SUFFIX,
    SCALE_SUFFIX,
)
from speccompile.compiler.weights_writer import WeightsWriter
from speccompile.runtime.errors import SpeccompileError

__all__ = ["Int8Inputs", "StoredTensor", "TensorReader", "read_stored", "write_weights"]

TensorReader = Callable[[str], NDArray[np.float32]]

_FILE = "quantize.json"
_FLOATS = {  # with the largest value of each
    "fp16": (np.dtype(np.float16), 65_504.0),
    "bf16": (np.dtype(ml_dtypes.bfloat16), (2.0 - 2.0**-7) * 2.0**127),
}


@dataclass(frozen=True)
class Int8Inputs:
    """What int8 layers make of their inputs, of which `statistics` tells the peaks.

    Columns whose input reaches `outlier_threshold` (6.0 in the paper; 0 is off) are held apart.
    With `static`, every layer gets the step its input is rounded with.
    """

    statistics: Statistics = field(default_factory=dict[str, NDArray[np.float32]])
    outlier_threshold: float = 0.0
    static: bool = False


@dataclass(frozen=True)
class StoredTensor:
    """How a tensor was stored; `bytes` counts all its parts.

    `kept_peak` is the largest magnitude of one kept in fp32 because the type asked for cannot hold
    it; `outliers` are columns of an int8 one held apart.
    """

    precision: str
    bytes: int
    outliers: int = 0
    kept_peak: float | None = None


def write_weights(
    config: DecoderConfig,
    read: TensorReader,
    precision: str,
    folder: Path,
    *,
    layers: Mapping[str, str] | None = None,
    inputs: Int8Inputs | None = None,
) -> dict[str, StoredTensor]:
    """Write ``folder/weights.safetensors`` with every tensor of `config`, and how each is stored.

    `precision` and `layers` are those of `tensor_precisions`. One tensor is in memory at a time.
    Raises SpeccompileError for a wrong setting, missing statistics, or values that are not finite.
    """
    precisions = tensor_precisions(config, precision, layers)
    plans = {
        name: _plan(config, name, kind, inputs or Int8Inputs()) for name, kind in precisions.items()
    }
    names = [name + suffix for name, plan in plans.items() for suffix in plan.suffixes]
    with WeightsWriter(folder, names) as writer:
        stored = {name: _store(writer, name, read(name), plan) for name, plan in plans.items()}
    content = {name: asdict(tensor) for name, tensor in stored.items()}
    (folder / _FILE).write_text(json.dumps(content, indent=1), encoding="utf-8")
    return stored


def read_stored(folder: Path) -> dict[str, StoredTensor]:
    """What `write_weights` returned, from its folder."""
    content = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    return {name: StoredTensor(**tensor) for name, tensor in content.items()}


@dataclass(frozen=True)
class _Plan:
    """What one tensor becomes: its columns `apart` [k], and its input's step [] or nothing."""

    precision: str
    apart: NDArray[np.int64]
    step: NDArray[np.float32] | None = None

    @property
    def suffixes(self) -> list[str]:
        """Of the names it is stored under."""
        outliers = [OUTLIERS_SUFFIX, OUTLIER_VALUES_SUFFIX] if self.apart.size else []
        step = [] if self.step is None else [INPUT_SCALE_SUFFIX]
        scale = [SCALE_SUFFIX] if self.precision == "int8" else []
        return ["", *scale, *outliers, *step]


def _plan(config: DecoderConfig, name: str, precision: str, inputs: Int8Inputs) -> _Plan:
    plan = _Plan(precision, np.empty(0, np.int64))
    if precision != "int8" or not (inputs.static or inputs.outlier_threshold):
        return plan
    # Tables are read by row: they have no input, and a tied one, which is also the head, no columns
    # that could be elsewhere.
    is_table = name.startswith("model.embed_")
    is_linear = not is_table or (name == "model.embed_tokens.weight" and config.tied_embeddings)
    if not is_linear:
        return plan
    width = tensor_shapes(config)[name][1]
    peaks = input_peaks(inputs.statistics, name.removesuffix(".weight"), width)
    apart = plan.apart
    if inputs.outlier_threshold and not is_table:
        apart = np.flatnonzero(peaks >= inputs.outlier_threshold).astype(np.int64)
    if not inputs.static:
        return _Plan(precision, apart)
    peak = np.delete(peaks, apart).max(initial=0.0)
    return _Plan(precision, apart, np.array((peak or 1.0) / 127.0, np.float32))


def _store(
    writer: WeightsWriter, name: str, tensor: NDArray[np.float32], plan: _Plan
) -> StoredTensor:
    peak = float(max(tensor.max(initial=0.0), -tensor.min(initial=0.0)))  # makes no copy
    if not np.isfinite(peak):
        raise SpeccompileError(f"{name}: holds values that are not finite; get the model again")
    if plan.precision == "int8":
        parts = _int8_parts(tensor, plan)
    else:
        parts = [_rounded(tensor, peak, plan.precision)]
    for suffix, values in zip(plan.suffixes, parts, strict=True):
        writer.add(name + suffix, values)
    size = sum(values.nbytes for values in parts)
    if plan.precision in _FLOATS and parts[0].dtype == np.float32:
        return StoredTensor("fp32", size, kept_peak=peak)
    return StoredTensor(plan.precision, size, len(plan.apart))


def _int8_parts(tensor: NDArray[np.float32], plan: _Plan) -> list[NDArray[np.generic]]:
    parts: list[NDArray[np.generic]] = [*quantize_int8(tensor, plan.apart)]
    if plan.apart.size:
        columns = tensor[:, plan.apart]
        parts += [plan.apart, _rounded(columns, float(np.abs(columns).max()), "fp16")]
    if plan.step is not None:
        parts.append(plan.step)
    return parts


def _rounded(tensor: NDArray[np.float32], peak: float, precision: str) -> NDArray[np.generic]:
    dtype, largest = _FLOATS.get(precision, (tensor.dtype, np.inf))
    return tensor.astype(dtype, copy=False) if peak <= largest else tensor
