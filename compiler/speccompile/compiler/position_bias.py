"""Relative position bias: which of its buckets a distance falls into (T5, arXiv 1910.10683)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.decoder import PositionBias

__all__ = ["position_buckets"]


def position_buckets(bias: PositionBias, *, both_ways: bool) -> NDArray[np.int64]:
    """The bucket of every distance; those beyond the last entry fall into its bucket too.

    Entry d [max_distance + 1] is for a key d places before its query. `both_ways`, entry
    max_distance + d [2 max_distance + 1] is for one d places behind it, before it where d is
    negative; each direction then has half of the buckets.
    """
    distances = np.arange(bias.max_distance + 1)
    if not both_ways:
        return _one_way(distances, bias.buckets, bias.max_distance)
    half = bias.buckets // 2
    buckets = _one_way(distances, half, bias.max_distance)
    return np.concatenate([buckets[:0:-1], buckets[:1], half + buckets[1:]])


def _one_way(distances: NDArray[np.int64], buckets: int, most: int) -> NDArray[np.int64]:
    """The first half of the buckets are single distances, the others grow by a constant factor."""
    single = buckets // 2
    # In fp32, as the models were trained: a boundary may lie elsewhere in fp64.
    ratio = np.maximum(distances, single).astype(np.float32) / np.float32(single)
    steps = np.log(ratio) / np.float32(np.log(most / single)) * np.float32(buckets - single)
    wide = np.minimum(single + steps.astype(np.int64), buckets - 1)
    return np.where(distances < single, distances, wide)
