"""A tree as the words and links that kernels take, padded to the sizes that graphs exist for.

Trees come as rows: ``parents[i]`` is the row before it that row i follows, and -1 where there is
none. That is so for the root, row 0, and for padding, which nothing follows: padding sees itself
only, and no other row sees it. The rows of a `Proposal` are ``[-1, *proposal.parents]``. As an
array of bools, the masks are `speccompile.plugins.tree.ancestors`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["BUCKETS", "WORD", "Links", "Nodes", "ancestor_words", "bucket", "links", "padded"]

Nodes = NDArray[np.int64]

WORD = 64
"""Bits of a word: up to so many rows, a row's mask is one."""

BUCKETS = (1, 2, 4, 8, 16, 32, 64)
"""Rows that a graph is captured for."""


class Links(NamedTuple):
    """The first child of every row [N] and the next of its siblings [N], or -1."""

    first_child: Nodes
    next_sibling: Nodes


def bucket(rows: int) -> int:
    """The least of `BUCKETS` that holds so many rows; above them, whole words."""
    return next((size for size in BUCKETS if size >= rows), -(-rows // WORD) * WORD)


def padded(parents: Sequence[int] | Nodes, rows: int) -> Nodes:
    """The tree with padding behind it, `rows` in all. Raises ValueError where it has more."""
    result = np.full(rows, -1, np.int64)
    result[: len(parents)] = parents
    return result


def ancestor_words(parents: Nodes) -> NDArray[np.uint64]:
    """[N, W], W = ceil(N / 64): row i sees row j where bit j % 64 of its word j // 64 is set.

    A row sees what its parent sees, and itself: W words are written a row.
    """
    rows = len(parents)
    words = np.zeros((rows, -(-rows // WORD)), np.uint64)
    for row, parent in enumerate(parents):
        if parent >= 0:
            words[row] = words[parent]
        words[row, row // WORD] |= np.uint64(1 << row % WORD)
    return words


def links(parents: Nodes) -> Links:
    """Children without a search: the first of a row, and from each the next, in their order."""
    first_child, next_sibling = np.full((2, len(parents)), -1, np.int64)
    for row in range(len(parents) - 1, 0, -1):
        parent = parents[row]
        if parent >= 0:
            next_sibling[row] = first_child[parent]
            first_child[parent] = row
    return Links(first_child, next_sibling)
