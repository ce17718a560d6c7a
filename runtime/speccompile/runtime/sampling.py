"""How a request wants its tokens chosen, and the random numbers to choose them with."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins import laws
from speccompile.plugins.philox import uniform_bits
from speccompile.runtime.errors import RequestError

__all__ = ["Purpose", "Randomness", "Sampling"]


@dataclass(frozen=True)
class Sampling:
    """Temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 switch those filters off.

    The order is temperature, then top-k, top-p and min-p, as in Hugging Face's generation. Where
    it is `audited`, draft and target choose with the same noise, so that the output is a function
    of target and seed alone: plain and speculative decoding give the same tokens, whatever drafts.
    The outputs of one prompt and one seed differ by their number, `sample`.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    min_p: float = 0.0
    audited: bool = False
    sample: int = 0

    def __post_init__(self) -> None:
        _within("temperature", self.temperature, 0.0, 100.0)
        _within("top_k", self.top_k, 0, 1 << 31)
        _within("min_p", self.min_p, 0.0, 1.0)
        _within("seed", self.seed, 0, (1 << 64) - 1)
        _within("sample", self.sample, 0, (1 << 32) - 1)
        if not 0.0 < self.top_p <= 1.0:
            raise RequestError(f"top_p is {self.top_p}; it must be above 0 and at most 1")

    @property
    def greedy(self) -> bool:
        return self.temperature == 0.0

    @property
    def filters(self) -> laws.Sampling:
        """What makes a law of logits."""
        return laws.Sampling(self.temperature, self.top_k, self.top_p, self.min_p)


class Purpose(IntEnum):
    """What a random number decides: each purpose has numbers of its own."""

    DRAFT = 0
    ACCEPT = 1
    EMIT = 2


@dataclass(frozen=True)
class Randomness:
    """The random numbers of one request, keyed by what they are for: `plugins.philox`.

    They are those that a GPU draws for itself, bit for bit. A token's own number belongs to its
    position. What a round draws besides, to draft and to accept, belongs to the round: a node that
    fell may have a successor at its position, and a number that helped to fell it is no longer
    uniform.
    """

    seed: int
    request: int = 0

    def emit(self, position: int) -> int:
        """The number, of 53 bits, that the token at `position` is drawn with."""
        return self._bits(position, Purpose.EMIT)

    def accept(self, root: int, node: int) -> int:
        """The number to judge a node by, in the round whose root has the position `root`."""
        return self._bits(root, Purpose.ACCEPT, node)

    def draft(self, root: int, node: int) -> int:
        """The number to draw a node with, in the round whose root has the position `root`."""
        return self._bits(root, Purpose.DRAFT, node)

    def noise(self, position: int, size: int) -> NDArray[np.float64]:
        """Exponential variables [size], one for each token: who divides them by a law draws the
        token of the least quotient. numpy's generator, whose raw bits are as fixed as ours."""
        # A list of a seed above 2^63 and a smaller number would pass through float64.
        key = np.array([self.seed, self.request], dtype=np.uint64)
        source = np.random.Philox(key=key, counter=[0, 0, 0, position])
        uniform = ((source.random_raw(size) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53
        noise: NDArray[np.float64] = -np.log(uniform)
        return noise

    def _bits(self, position: int, purpose: Purpose, branch: int = 0) -> int:
        bits = uniform_bits(self.seed, position, purpose, request=self.request, branch=branch)
        return int(bits)


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise RequestError(f"{name} is {value}; it must be from {low:g} to {high:g}")
