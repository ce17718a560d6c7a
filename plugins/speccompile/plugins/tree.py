"""What `TreeMask` and `CompactRows` compute, in numpy: the oracle of both operators (`schema`)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["ancestors", "compact_rows", "depths", "tree_mask"]

Nodes = NDArray[np.int64]


def depths(parents: Nodes) -> Nodes:
    """How far each node of one tree [N] is from the root; 0 for the root and for padding."""
    result = np.zeros_like(parents)
    for node in range(1, len(parents)):
        if parents[node] >= 0:
            result[node] = result[parents[node]] + 1
    return result


def ancestors(parents: Nodes) -> NDArray[np.bool_]:
    """[N, N]: node n (row) descends from, or is, node m (column)."""
    result = np.eye(len(parents), dtype=np.bool_)
    for node in range(1, len(parents)):
        if parents[node] >= 0:
            result[node] |= result[parents[node]]
    return result


def tree_mask(
    parents: NDArray[np.int64], lengths: NDArray[np.int64], capacity: int, window: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """`position_ids` [B, N], `attention_mask` and `sliding_mask` [B, 1, N, S]; see the schema."""
    batch, nodes = parents.shape
    positions = np.stack([depths(tree) for tree in parents]) + lengths[:, None]
    slots = np.arange(capacity)
    mask = np.zeros((batch, 1, nodes, capacity), np.bool_)
    of_slots = np.broadcast_to(slots, (batch, capacity)).copy()  # the position that each slot holds
    for sequence, length in enumerate(lengths):
        end = min(int(length) + nodes, capacity)
        mask[sequence, 0, :, :length] = True
        mask[sequence, 0, :, length:end] = ancestors(parents[sequence])[:, : end - length]
        of_slots[sequence, length:end] = positions[sequence, : end - length]
    near = of_slots[:, None, None, :] > positions[:, None, :, None] - window
    return positions, mask, mask & near if window else mask.copy()


def compact_rows(
    cache: NDArray[np.generic],
    path: NDArray[np.int64],
    count: NDArray[np.int64],
    lengths: NDArray[np.int64],
) -> NDArray[np.generic]:
    """The cache [B, H, S, D] with every path at the front of its rows; see the schema."""
    compacted = cache.copy()
    for sequence, length in enumerate(lengths):
        accepted = path[sequence, : count[sequence]]
        front = slice(length, length + len(accepted))
        compacted[sequence][:, front] = cache[sequence][:, length + accepted]
    return compacted
