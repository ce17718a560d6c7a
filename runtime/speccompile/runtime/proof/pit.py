"""Whether a stream of tokens was drawn from the laws that it should have: one number a token.

Let F be the distribution function of a token's law p, the tokens in some order. If the token x has
that law, ``v = F(x-) + U p(x)`` is uniform on [0, 1] whatever the law is (the randomized
probability integral transform), and a stream of tokens, each with its own law given those before
it, is a stream of independent uniform numbers. So one test serves for laws that all differ.

Any order will do that is known before the token. Where a draft proposes by a law q, the tokens come
in the order of q / p: whatever a wrong rule lets through of the draft's law makes v too small then,
at every token, and adds up. In an order that means nothing, it would cancel.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.laws import Law, mass
from speccompile.plugins.philox import UNIFORM_BITS, uniform_bits

__all__ = ["ALPHA", "BINS", "LARGEST_Z", "Pit"]

ALPHA = 1e-6
"""How often a sound stream fails the test of its distribution."""

LARGEST_Z = 5.0
"""Standard deviations: a sound stream leaves them about as often."""

BINS = 4096

_PURPOSE = 255  # no number of a request is for it


@dataclass
class Pit:
    """Takes in tokens one after the other; what it keeps of them does not grow.

    The numbers U are Philox's, keyed by `seed` and the count of tokens: independent of all that
    chose a token. The greatest deviation is taken at the edges of `BINS` bins: it is at most one
    part in `BINS` below the exact Kolmogorov-Smirnov statistic.
    """

    seed: int = 0
    count: int = 0
    impossible: int = 0
    """Tokens to which their law gives no chance: one is enough to refute it."""
    histogram: NDArray[np.int64] = field(default_factory=lambda: np.zeros(BINS, np.int64))
    _sum: float = 0.0
    _products: float = 0.0
    _last: float = 0.0

    def add(self, law: Law, token: int, draft: Law | None = None) -> None:
        """A token, the law [V] that it should have been drawn from, and perhaps the draft's.

        Without the draft's, the likeliest tokens come first.
        """
        masses = mass(law)
        here = int(masses[token])
        key = masses if draft is None else _ratio(draft, law)
        ahead = key > key[token]
        ahead[:token] |= key[:token] == key[token]
        uniform = math.ldexp(int(uniform_bits(self.seed, self.count, _PURPOSE)), -UNIFORM_BITS)
        value = (int(masses[ahead].sum()) + uniform * here) / int(masses.sum())
        self.count += 1
        self.impossible += not here
        self.histogram[min(int(value * BINS), BINS - 1)] += 1
        deviation = value - 0.5
        self._sum += deviation
        self._products += deviation * self._last
        self._last = deviation

    @property
    def statistic(self) -> float:
        """The greatest deviation of the empirical distribution function from a uniform one."""
        if not self.count:
            return 0.0
        edges = np.arange(1, BINS + 1) / BINS
        return float(np.abs(np.cumsum(self.histogram) / self.count - edges).max())

    @property
    def limit(self) -> float:
        """What `statistic` exceeds with a probability of at most `ALPHA`, for any count
        (Dvoretzky, Kiefer and Wolfowitz, with Massart's constant)."""
        return math.sqrt(math.log(2.0 / ALPHA) / (2.0 * max(self.count, 1)))

    @property
    def mean(self) -> float:
        """Of v: a half."""
        return 0.5 + self._sum / max(self.count, 1)

    @property
    def mean_z(self) -> float:
        """How far the mean is from a half, in standard deviations."""
        return self._sum * math.sqrt(12.0 / max(self.count, 1))

    @property
    def correlation(self) -> float:
        """Of neighbours in the stream: zero."""
        return 12.0 * self._products / max(self.count - 1, 1)

    @property
    def correlation_z(self) -> float:
        """That in standard deviations."""
        return self.correlation * math.sqrt(max(self.count - 1, 1))

    @property
    def refusal(self) -> str | None:
        """Why the stream cannot have had those laws, unless it can."""
        if self.impossible:
            return f"{self.impossible} tokens that their law excludes"
        if self.statistic > self.limit:
            return f"a deviation of {self.statistic:.4f}, above {self.limit:.4f}"
        if abs(self.mean_z) > LARGEST_Z:
            return f"a mean of {self.mean:.4f} (z {self.mean_z:.1f})"
        if abs(self.correlation_z) > LARGEST_Z:
            return (
                f"a correlation of neighbours of {self.correlation:.4f} ({self.correlation_z:.1f})"
            )
        return None

    def figures(self, bins: int = 64) -> dict[str, object]:
        """What was found, as JSON; the histogram in so many `bins`, a power of two."""
        return {
            "tokens": self.count,
            "impossible": self.impossible,
            "ks": self.statistic,
            "ks_limit": self.limit,
            "alpha": ALPHA,
            "mean": self.mean,
            "mean_z": self.mean_z,
            "correlation": self.correlation,
            "correlation_z": self.correlation_z,
            "histogram": self.histogram.reshape(bins, -1).sum(axis=1).tolist(),
        }

    def state(self) -> dict[str, object]:
        """All there is, as JSON, to go on from."""
        filled = np.flatnonzero(self.histogram)
        return {
            "seed": self.seed,
            "count": self.count,
            "impossible": self.impossible,
            "bins": [filled.tolist(), self.histogram[filled].tolist()],
            "moments": [self._sum, self._products, self._last],
        }

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Pit:
        """The one whose `state` that is."""
        pit = cls(state["seed"], state["count"], state["impossible"])
        bins, counts = state["bins"]
        pit.histogram[bins] = counts
        pit._sum, pit._products, pit._last = state["moments"]
        return pit


def _ratio(draft: Law, law: Law) -> NDArray[np.float64]:
    """By which factor the draft prefers each token; whatever it is where the law has nothing."""
    return np.divide(draft, law, out=np.zeros(len(law)), where=law > 0.0, dtype=np.float64)
