"""From logits to the law that a token is drawn from, in arithmetic that is the same everywhere.

What is done to every token is done in fp32, one rounded operation after the other, the exponential
included; what is summed over tokens is summed in whole numbers, whose order does not matter. So
numpy, an ONNX graph and any number of GPU threads get the same law, bit for bit, and draw the same
token. The draft's law and the target's come from the same function, so a proposal is judged by the
very law that it was drawn from. Against exact arithmetic a law errs by about 1e-7.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "GREEDY",
    "Law",
    "Sampling",
    "accepts",
    "argmax",
    "draw",
    "exponential",
    "largest_but",
    "law",
    "mass",
    "without",
]

Law = NDArray[np.float32]
"""Probabilities [V]; what one of them counts for is its `mass`."""

WEIGHT_ONE = float(2**44)  # a weight of 1 in whole numbers: 2^18 of them fit into 63 bits
MASS_ONE = float(2**52)  # likewise a probability of 1: every smaller sum is exact in a double
UNIFORM_STEP = float(2.0**-53)
_BLOCK = 256
_USUAL = 1024  # tokens that are nearly always enough for top-p
_SLACK = 1e-3  # of scaled logits: far more than the exponential errs by
_LOWEST = np.float32(-40.0)  # far below the least weight that counts, 2^-44

# e^z = 2^n e^f with n = round(z / ln 2), ln 2 in two parts of which n times the first is exact, and
# e^f by its Taylor polynomial, |f| <= ln(2) / 2: an error below 3e-7 of the result.
_LOG2_E = np.float32(1.44269504)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_TAYLOR = tuple(np.float32(value) for value in (1 / 720, 1 / 120, 1 / 24, 1 / 6, 0.5, 1.0, 1.0))


class Sampling(NamedTuple):
    """Temperature 0 is greedy; top_k 0, top_p 1 and min_p 0 switch those filters off.

    The order is temperature, top-k, top-p, min-p. A token tied with the last one of a filter is
    kept with it, so that no law depends on an order among equals.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0


GREEDY = Sampling()


def argmax(logits: NDArray[np.floating]) -> int | None:
    """The token of the largest logit of a row [V], the lowest of equals; None for an invalid row.

    A row is invalid that has a NaN, or whose maximum is infinite. Minus infinity is a logit.
    """
    best = int(logits.argmax())  # of a row with NaNs, the first of these
    return best if np.isfinite(logits[best]) else None


def largest_but(values: NDArray[np.floating], index: int) -> float:
    """The largest of all values [V] but one; minus infinity where there is no other."""
    rest = [part.max() for part in (values[:index], values[index + 1 :]) if len(part)]
    return float(max(rest, default=-np.inf))


def law(logits: NDArray[np.floating], sampling: Sampling) -> Law | None:
    """The law [V] that `sampling` makes of a row of logits; None for an invalid row (`argmax`)."""
    best = argmax(logits)
    if best is None:
        return None
    if sampling.temperature == 0.0:
        certain = np.zeros(len(logits), np.float32)
        certain[best] = 1.0
        return certain
    rows = logits.astype(np.float32, copy=False)
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the largest to -inf
        scaled = (rows - rows[best]) / np.float32(sampling.temperature)
    if not 0 < sampling.top_k < len(scaled):
        return _weighed(scaled, sampling)
    least = np.partition(scaled, -sampling.top_k)[-sampling.top_k]
    near = np.flatnonzero(scaled >= _tied_with(float(least)))
    whole_law = np.zeros(len(scaled), np.float32)
    whole_law[near] = _weighed(scaled[near], sampling)
    return whole_law


def _tied_with(scaled: float) -> float:
    """What is below this has a smaller weight in whole numbers than `scaled`, however rounded."""
    smaller = math.exp(scaled) - 1.0 / WEIGHT_ONE
    return math.log(smaller) - _SLACK if smaller > 0.0 else -math.inf


def _weighed(scaled: NDArray[np.float32], sampling: Sampling) -> Law:
    """The law of logits that were divided by the temperature, the largest of which is 0."""
    weights = exponential(scaled)
    whole = _whole(weights, WEIGHT_ONE)
    cut = _cut(whole, sampling)
    kept = whole >= cut
    total = int((whole * kept).sum())
    weights *= kept
    weights *= np.float32(WEIGHT_ONE / float(total))
    return weights


def exponential(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """e to the power of values that are at most 0; below -40 it is 0."""
    inside = np.maximum(values, _LOWEST)
    power = np.rint(inside * _LOG2_E)
    inside -= power * _LN2_HIGH
    inside -= power * _LN2_LOW
    result = np.full_like(inside, _TAYLOR[0])
    for coefficient in _TAYLOR[1:]:
        result *= inside
        result += coefficient
    # Times 2^power, which is exact: the exponent's bits, of a number that stays a normal one.
    result.view(np.int32)[...] += power.astype(np.int32) << 23
    result *= values >= _LOWEST
    return result


def mass(law: Law) -> NDArray[np.int64]:
    """The probabilities in units of 2^-52, rounded down: these are what is summed."""
    return _whole(law, MASS_ONE)


def without(law: Law, token: int) -> Law:
    """The law of the other tokens; of no mass where there is no other."""
    rest = law.copy()
    rest[token] = 0.0
    total = int(mass(rest).sum())
    return rest * rest.dtype.type(MASS_ONE / float(total)) if total else rest


def draw(law: Law, uniform: int) -> int | None:
    """The token at `uniform` / 2^53 of the cumulated mass; None where there is none."""
    masses = mass(law)
    # Block by block first: the sums of a whole vocabulary one by one take four times as long.
    blocks = np.cumsum(np.add.reduceat(masses, np.arange(0, len(masses), _BLOCK)))
    total = int(blocks[-1])
    if not total:
        return None
    # The product may round up to the total itself, where no token is.
    place = min(int(float(total) * (float(uniform) * UNIFORM_STEP)), total - 1)
    block = int(np.searchsorted(blocks, place, side="right"))
    before = int(blocks[block - 1]) if block else 0
    inside = np.cumsum(masses[block * _BLOCK : (block + 1) * _BLOCK])
    return block * _BLOCK + int(np.searchsorted(inside, place - before, side="right"))


def accepts(uniform: int, p: float, q: float) -> bool:
    """With probability min(1, p / q)."""
    return float(uniform) * UNIFORM_STEP * float(q) < float(p)


def _cut(whole: NDArray[np.int64], sampling: Sampling) -> int:
    """The least weight that is kept; a weight of 0 never is."""
    cut = 1
    if 0 < sampling.top_k < len(whole):
        cut = max(cut, int(np.partition(whole, -sampling.top_k)[-sampling.top_k]))
    if sampling.top_p < 1.0:
        cut = max(cut, _nucleus(whole[whole >= cut], sampling.top_p))
    least = float(np.float32(sampling.min_p)) * WEIGHT_ONE
    return max(cut, int(np.ceil(least)))


def _nucleus(weights: NDArray[np.int64], top_p: float) -> int:
    """The least of `weights` that is kept: as long as what lies above it is not yet enough."""
    enough = float(np.float32(top_p)) * float(weights.sum())
    if len(weights) > _USUAL:
        largest = np.partition(weights, -_USUAL)[-_USUAL:]
        # Of its least value there may be more: the cut must lie above that.
        if float(largest[largest > largest.min()].sum()) >= enough:
            weights = largest
    values, counts = np.unique(weights, return_counts=True)
    values, counts = values[::-1], counts[::-1]
    above = np.concatenate([[0], np.cumsum(values * counts)])
    kept = int((above[:-1].astype(np.float64) < enough).sum())
    return int(values[max(kept, 1) - 1])


def _whole(values: NDArray[np.float32], one: float) -> NDArray[np.int64]:
    # Times a power of two, which is exact; the conversion drops the fraction.
    return (values * np.float32(one)).astype(np.int64)
