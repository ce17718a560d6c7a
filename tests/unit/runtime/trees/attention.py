"""Attention among the rows of a tree, dense and by gathering ancestors, with what it takes.

Queries, keys and values come as one array [3, N, D]. What is counted are the multiplications of
queries with keys and of weights with values.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.tree import ancestors

__all__ = ["Rows", "dense", "gathered"]

Nodes = NDArray[np.int64]
Rows = NDArray[np.float32]


def dense(rows: Rows, parents: Nodes) -> tuple[Rows, int]:
    """[N, D], of every row with every row, those that it must not see taken out by a mask."""
    queries, keys, values = _scaled(rows)
    scores = np.where(ancestors(parents), queries @ keys.T, np.float32(-np.inf))
    return _softmax(scores) @ values, 2 * scores.size * rows.shape[-1]


def gathered(rows: Rows, parents: Nodes) -> tuple[Rows, int]:
    """[N, D], of every row with the rows on its way up alone."""
    queries, keys, values = _scaled(rows)
    result, operations = np.empty_like(values), 0
    for row, query in enumerate(queries):
        way = [row]
        while parents[way[-1]] >= 0:
            way.append(int(parents[way[-1]]))
        scores = keys[way] @ query
        result[row] = _softmax(scores) @ values[way]
        operations += 2 * scores.size * len(query)
    return result, operations


def _scaled(rows: Rows) -> tuple[Rows, Rows, Rows]:
    queries, keys, values = rows
    return queries / np.float32(np.sqrt(rows.shape[-1])), keys, values


def _softmax(scores: Rows) -> Rows:
    weights: Rows = np.exp(scores - scores.max(-1, keepdims=True))
    normal: Rows = weights / weights.sum(-1, keepdims=True)
    return normal
