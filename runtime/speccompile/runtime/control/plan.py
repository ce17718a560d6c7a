"""The best depth of a proposal: as many tokens a second as survival and costs allow.

A proposal of depth k emits E(k) = 1 + a_1 + ... + a_k tokens in T(k) seconds, where a_i is the
probability that its first i tokens all stand. Rounds follow one another, so what counts is
E[tokens] / E[seconds] (renewal-reward), and its greatest value rho is the price of a second: one
more token is worth its seconds where a_(k+1) > rho (T(k+1) - T(k)), Dinkelbach's condition.
"""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

__all__ = ["Plan"]


class Plan:
    """What the depths from 0, plain decoding, are worth."""

    def __init__(self, ahead: NDArray[np.float64], seconds: NDArray[np.float64]) -> None:
        """`ahead` [n] are a_1, a_2, ...; `seconds` [n + 1], above 0 and never falling, T(0) to
        T(n)."""
        self._standing = [1.0, *ahead.tolist()]
        self._tokens = np.cumsum(self._standing)
        self._seconds = seconds
        self.rate = float((self._tokens / seconds).max())
        """Tokens a second at the best depth."""

    @property
    def gain(self) -> float:
        """The logarithm of that rate over plain decoding's."""
        return log(self.rate * float(self._seconds[0]))

    def best(self, deepest: int) -> int:
        """The depth, at most `deepest`, of most worth at that rate; the least of equals."""
        worth = self._tokens[: deepest + 1] - self.rate * self._seconds[: deepest + 1]
        return int(worth.argmax())

    def threshold(self, depth: int, deepest: int) -> float:
        """The survival that a path of `depth` must have for going on to be worth it.

        It looks at all depths up to `deepest`, not at the next one alone: costs have steps.
        """
        if depth >= deepest:
            return float("inf")
        reach = slice(depth + 1, deepest + 1)
        tokens = (self._tokens[reach] - self._tokens[depth]) / self._standing[depth]
        seconds = self._seconds[reach] - self._seconds[depth]
        return float(self.rate * (seconds / np.maximum(tokens, 1e-9)).min())
