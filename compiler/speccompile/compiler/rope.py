"""The rotary embeddings (arXiv 2104.09864) of the supported families, as frequencies.

Each scaling stretches a model's context by slowing some of its rotations down. The arithmetic is
fp32, in the order of the reference implementations: at position 2,000 the last bit shows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.decoder import Rope

__all__ = ["linear_rope", "llama3_rope", "long_rope", "plain_rope", "rope_tables", "yarn_rope"]

_Floats = NDArray[np.float32]


def plain_rope(theta: float, dim: int) -> Rope:
    """Rotation of `dim` channels with base `theta`."""
    return _rope(np.float32(1.0) / _powers(theta, dim))


def linear_rope(theta: float, dim: int, *, factor: float) -> Rope:
    """Position interpolation (arXiv 2306.15595): every rotation slower by `factor`."""
    return _rope(np.float32(1.0) / _powers(theta, dim) / np.float32(factor))


def llama3_rope(
    theta: float,
    dim: int,
    *,
    factor: float,
    low_freq_factor: float,
    high_freq_factor: float,
    original_context: int,
) -> Rope:
    """Llama 3.1: long wavelengths slower by `factor`, short ones as they were, a ramp between."""
    frequencies = np.float32(1.0) / _powers(theta, dim)
    wavelengths = np.float32(2 * math.pi) / frequencies
    slowed = frequencies / np.float32(factor)
    share = (np.float32(original_context) / wavelengths - np.float32(low_freq_factor)) / np.float32(
        high_freq_factor - low_freq_factor
    )
    between = (np.float32(1.0) - share) * frequencies / np.float32(factor) + share * frequencies
    is_long = wavelengths > original_context / low_freq_factor
    is_short = wavelengths < original_context / high_freq_factor
    return _rope(np.where(is_long, slowed, np.where(is_short, frequencies, between)))


def yarn_rope(
    theta: float,
    dim: int,
    *,
    factor: float,
    original_context: int,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    attention_factor: float | None = None,
) -> Rope:
    """YaRN (arXiv 2309.00071): a ramp over the channels, between the rotations that complete
    `beta_slow` and `beta_fast` turns in the original context."""
    powers = _powers(theta, dim)

    def channel(turns: float) -> float:
        return dim * math.log(original_context / (turns * 2 * math.pi)) / (2 * math.log(theta))

    low, high = max(math.floor(channel(beta_fast)), 0), min(math.ceil(channel(beta_slow)), dim - 1)
    width = (high - low) or 0.001
    ramp = np.clip((np.arange(dim // 2, dtype=np.float32) - low) / np.float32(width), 0, 1)
    kept = np.float32(1.0) - ramp
    slowed, plain = np.float32(1.0) / (np.float32(factor) * powers), np.float32(1.0) / powers
    if attention_factor is None:
        attention_factor = 0.1 * math.log(factor) + 1.0 if factor > 1 else 1.0
    return _rope(slowed * (np.float32(1.0) - kept) + plain * kept, attention_factor)


def long_rope(
    theta: float,
    dim: int,
    *,
    channel_factors: Sequence[float],
    factor: float,
    original_context: int,
    attention_factor: float | None = None,
) -> Rope:
    """LongRoPE (arXiv 2402.13753): every rotation slower by a factor of its own."""
    if attention_factor is None:
        stretch = 1 + math.log(factor) / math.log(original_context) if factor > 1 else 1.0
        attention_factor = math.sqrt(stretch)
    divisors = np.asarray(channel_factors, dtype=np.float32) * _powers(theta, dim)
    return _rope(np.float32(1.0) / divisors, attention_factor)


def rope_tables(rope: Rope, positions: int) -> tuple[_Floats, _Floats]:
    """Cosines and sines [positions, channels / 2] of the angles, fp32."""
    frequencies = np.asarray(rope.frequencies, dtype=np.float32)
    angles = np.outer(np.arange(positions, dtype=np.float32), frequencies).astype(np.float32)
    factor = np.float32(rope.attention_factor)
    return np.cos(angles) * factor, np.sin(angles) * factor


def _powers(theta: float, dim: int) -> _Floats:
    """theta ^ (2 i / dim), rounded from fp64: torch's fp32 power is within a last bit of that on
    any machine, and numpy's often is not."""
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    return np.power(np.float64(theta), exponents.astype(np.float64)).astype(np.float32)


def _rope(frequencies: NDArray[np.floating], attention_factor: float = 1.0) -> Rope:
    values = frequencies.astype(np.float32)
    return Rope(tuple(float(value) for value in values), attention_factor)
