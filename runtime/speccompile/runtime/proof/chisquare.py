"""Pearson's chi-square test, with the standard library: a production host has no scipy."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Fit", "goodness_of_fit", "survival"]

# Below this many expected counts the statistic of a cell is not chi-square distributed.
_LEAST_EXPECTED = 5.0

_EPSILON = 1e-15
_TINY = 1e-300


class Fit(NamedTuple):
    """`p` is the probability of a `statistic` as large as this if the law is the expected one."""

    statistic: float
    degrees: int
    p: float


def goodness_of_fit(observed: NDArray[np.int64], law: NDArray[np.float64]) -> Fit:
    """Test counts [C] against probabilities [C]; rare cells are merged into one.

    A count in a cell of probability zero refutes the law by itself. Where fewer than two cells are
    left there is nothing to test, and p is 1.
    """
    if observed[law == 0.0].any():
        return Fit(math.inf, 0, 0.0)
    counts, expected = _merged(observed, law * observed.sum())
    degrees = len(expected) - 1
    if degrees < 1:
        return Fit(0.0, 0, 1.0)
    statistic = float(((counts - expected) ** 2 / expected).sum())
    return Fit(statistic, degrees, survival(statistic, degrees))


def survival(statistic: float, degrees: int) -> float:
    """P(X >= statistic) for a chi-square variable: the upper regularized gamma function.

    A series below the mean and a continued fraction (modified Lentz) above it, as in Numerical
    Recipes, section 6.2; each is exact to some 1e-13 on its side, also far out in the tail.
    """
    a, x = degrees / 2.0, statistic / 2.0
    if x <= 0.0:
        return 1.0
    if math.isinf(x):
        return 0.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    return 1.0 - scale * _lower_series(a, x) if x < a + 1.0 else scale * _upper_fraction(a, x)


def _lower_series(a: float, x: float) -> float:
    term = total = 1.0 / a
    while term > total * _EPSILON:
        a += 1.0
        term *= x / a
        total += term
    return total


def _upper_fraction(a: float, x: float) -> float:
    b = x + 1.0 - a
    c, d = 1.0 / _TINY, 1.0 / b
    result, i, delta = d, 0, 0.0
    while abs(delta - 1.0) > _EPSILON:
        i += 1
        numerator = -i * (i - a)
        b += 2.0
        d = 1.0 / (numerator * d + b or _TINY)
        c = b + numerator / c or _TINY
        delta = d * c
        result *= delta
    return result


def _merged(
    observed: NDArray[np.int64], expected: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Pool the rarest cells until every cell, the pool too, is expected often enough."""
    order = np.argsort(expected)
    observed, expected = observed[order], expected[order]
    rare = int(np.searchsorted(expected, _LEAST_EXPECTED))
    if not rare:
        return observed, expected
    filled = int(np.searchsorted(np.cumsum(expected), _LEAST_EXPECTED)) + 1
    end = max(rare, filled)
    starts = [0, *range(end, len(expected))]
    return np.add.reduceat(observed, starts), np.add.reduceat(expected, starts)
