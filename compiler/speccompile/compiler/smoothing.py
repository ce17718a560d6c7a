"""SmoothQuant (arXiv 2211.10438): move the difficulty of int8 from activations into weights.

Column j of a linear layer's input is divided by s_j and the layer's column j multiplied by it, so
that the product stays. The division costs nothing at run time: it is folded into the norm that
feeds the layer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.calibration import Statistics, input_peaks
from speccompile.compiler.decoder import DecoderConfig, layer_norms, tensor_shapes
from speccompile.compiler.quantize import TensorReader

__all__ = ["smoothed"]

# Beyond this a factor would not balance two ranges, but hide one in the rounding of the other.
_LARGEST_FACTOR = np.float32(1024.0)


def smoothed(
    config: DecoderConfig, read: TensorReader, statistics: Statistics, alpha: float
) -> tuple[TensorReader, Statistics]:
    """The same model with smoothed weights, and the statistics of its activations.

    s_j = max|X_j|^alpha / max|W_j|^(1 - alpha) over the layers that one norm feeds, within 1/1024
    to 1024; 1 for a column that is 0 throughout. An `alpha` of 0.5 shares the difficulty evenly.
    Norms that feed something else, and layers not fed by a norm, stay as they are. Reads the
    weights of every smoothed layer once, one at a time.
    """
    factors: dict[str, NDArray[np.float32]] = {}
    divisors: dict[str, NDArray[np.float32]] = {}
    peaks = dict(statistics)
    for group in _groups(config):
        scale = _factors(group, read, statistics, alpha)
        for linear in group.linears:
            factors[f"{linear}.weight"] = scale
            peaks[linear] = statistics[linear] / scale
        divisors |= dict.fromkeys(group.norm, scale)

    def read_smoothed(name: str) -> NDArray[np.float32]:
        values = read(name)
        if name in factors:
            return values * factors[name]
        return values / divisors[name] if name in divisors else values

    return read_smoothed, peaks


@dataclass(frozen=True)
class _Group:
    """A norm, by its tensors, and the linear layers that are all it feeds."""

    norm: tuple[str, ...]
    linears: tuple[str, ...]


def _groups(config: DecoderConfig) -> Iterator[_Group]:
    norms, shapes = layer_norms(config), tensor_shapes(config)
    fed = {
        norms.before_attention: ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
        norms.before_mlp: ("mlp.gate_proj", "mlp.up_proj") if config.gated else ("mlp.up_proj",),
    }
    for index in range(config.layers):
        layer = f"model.layers.{index}"
        for norm, linears in fed.items():
            if norm is not None:
                tensors = (f"{layer}.{norm}.weight", f"{layer}.{norm}.bias")
                yield _Group(
                    tuple(name for name in tensors if name in shapes),
                    tuple(f"{layer}.{linear}" for linear in linears),
                )


def _factors(
    group: _Group, read: TensorReader, statistics: Statistics, alpha: float
) -> NDArray[np.float32]:
    columns = [_column_peaks(read(f"{linear}.weight")) for linear in group.linears]
    weights: NDArray[np.float32] = np.max(columns, axis=0)
    peaks = [input_peaks(statistics, linear, len(weights)) for linear in group.linears]
    inputs: NDArray[np.float32] = np.max(peaks, axis=0)
    used = (inputs > 0) & (weights > 0)
    scale = np.ones_like(weights)
    scale[used] = inputs[used] ** alpha / weights[used] ** (1 - alpha)
    return scale.clip(1 / _LARGEST_FACTOR, _LARGEST_FACTOR)


def _column_peaks(matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """[in] of ``[out, in]``, without a copy of it."""
    highest, lowest = matrix.max(axis=0), matrix.min(axis=0)
    return np.array(np.maximum(highest, -lowest), np.float32)
