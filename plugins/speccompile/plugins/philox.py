"""Counter-based random numbers: Philox4x32-10 (Salmon et al., SC'11), the same bits everywhere.

A number is a function of what it is for, not of a moment: the seed is the key; position, purpose,
request and branch are the counter. So rolling back, streaming and batching change no draw.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["UNIFORM_BITS", "philox", "uniform_bits"]

UNIFORM_BITS = 53
"""A uniform number is a whole number of so many bits, to be divided by 2^53: exact in a double."""

_ROUNDS = 10
_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_KEY_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)
_LOW, _WORD = np.uint64(0xFFFFFFFF), np.uint64(32)


def uniform_bits(
    seed: ArrayLike,
    position: ArrayLike,
    purpose: ArrayLike,
    *,
    request: ArrayLike = 0,
    branch: ArrayLike = 0,
) -> NDArray[np.int64]:
    """Whole numbers below 2^53, one for every element of the arguments, broadcast.

    `seed` has 64 bits, `position` 56, `purpose` 8, `request` and `branch` 32 each. The `branch`
    tells apart what is drawn at one position for one purpose: what a round draws to draft and to
    accept has the position of its root and, as branch, the node's number.
    """
    seed, position = np.asarray(seed, np.uint64), np.asarray(position, np.uint64)
    high = (position >> _WORD) | (np.asarray(purpose, np.uint64) << np.uint64(24))
    counter = (position & _LOW, high, request, branch)
    first, second, _, _ = philox(counter, (seed & _LOW, seed >> _WORD))
    # 27 bits of one word, 26 of the other.
    upper, lower = first >> np.uint64(5), second >> np.uint64(6)
    bits: NDArray[np.int64] = ((upper << np.uint64(26)) | lower).astype(np.int64)
    return bits


def philox(
    counter: tuple[ArrayLike, ArrayLike, ArrayLike, ArrayLike], key: tuple[ArrayLike, ArrayLike]
) -> tuple[NDArray[np.uint64], ...]:
    """Four words of 32 bits for a counter of four words and a key of two; arrays broadcast."""
    a, b, c, d = (np.asarray(word, np.uint64) for word in counter)
    left, right = (np.asarray(word, np.uint64) for word in key)
    for _ in range(_ROUNDS):
        first, second = a * _MULTIPLIERS[0], c * _MULTIPLIERS[1]
        a, b, c, d = (
            (second >> _WORD) ^ b ^ left,
            second & _LOW,
            (first >> _WORD) ^ d ^ right,
            first & _LOW,
        )
        left, right = (left + _KEY_STEPS[0]) & _LOW, (right + _KEY_STEPS[1]) & _LOW
    return a, b, c, d
