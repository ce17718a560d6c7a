"""From logits to the law that a token is drawn from, and the random numbers to draw with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.philox import UNIFORM_BITS, uniform_bits
from speccompile.runtime.errors import RequestError

__all__ = ["Purpose", "Randomness", "Sampling", "law"]


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen. Temperature 0 is greedy; top_k 0 and top_p 1 switch those filters off.

    The order is temperature, then top-k, then top-p, as in Hugging Face's generation.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        _within("temperature", self.temperature, 0.0, 100.0)
        _within("top_k", self.top_k, 0, 1 << 31)
        _within("seed", self.seed, 0, (1 << 64) - 1)
        if not 0.0 < self.top_p <= 1.0:
            raise RequestError(f"top_p is {self.top_p}; it must be above 0 and at most 1")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0


class Purpose(IntEnum):
    """What a random number decides: each purpose has numbers of its own."""

    DRAFT = 0
    ACCEPT = 1
    EMIT = 2


@dataclass(frozen=True)
class Randomness:
    """Uniform numbers of one request, keyed by seed, position and purpose: `plugins.philox`.

    They are those that a GPU draws for itself, bit for bit.
    """

    seed: int

    def uniform(self, position: int, purpose: Purpose) -> float:
        """The number in [0, 1) of one position and purpose."""
        return float(uniform_bits(self.seed, position, purpose)) * 2.0**-UNIFORM_BITS


def law(logits: NDArray[np.float32], sampling: Sampling) -> NDArray[np.float64]:
    """The distribution [V] that `sampling` makes of one row of logits; not for greedy decoding.

    Tokens tied with the last one of top-k or top-p are kept with it, so that the law does not
    depend on an order among equals.
    """
    scaled = logits.astype(np.float64)
    # With the largest at 0 before the division, a tiny temperature sends only the others to -inf.
    scaled -= scaled.max()
    with np.errstate(over="ignore"):
        scaled /= sampling.temperature
    if 0 < sampling.top_k < len(scaled):
        least = np.partition(scaled, -sampling.top_k)[-sampling.top_k]
        scaled[scaled < least] = -np.inf
    weights: NDArray[np.float64] = np.exp(scaled)
    weights /= weights.sum()
    if sampling.top_p < 1.0:
        descending = np.sort(weights)[::-1]
        last = int(np.searchsorted(np.cumsum(descending), sampling.top_p))
        weights[weights < descending[min(last, len(descending) - 1)]] = 0.0
        weights /= weights.sum()
    return weights


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise RequestError(f"{name} is {value}; it must be from {low:g} to {high:g}")
