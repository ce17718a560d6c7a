"""The best tree for a machine, found ahead of time (Sequoia, arXiv 2402.12374).

What is known is how often the first, second, ... child at a depth is the one accepted, and what
steps cost. The expected tokens of a tree are 1 + the sum over its nodes of the product of these
probabilities along the path, because siblings exclude one another. Dynamic programming finds the
tree that has most of them for every number of nodes and levels; the costs choose among these. It
differs from the paper in that the probabilities may depend on the depth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Shape", "best_shape"]

Profile = Sequence[Sequence[float]]

_Values = NDArray[np.float64]
_Sizes = NDArray[np.int64]


@dataclass(frozen=True)
class Shape:
    """A tree without tokens: the c-th child of a node is the draft's c-th guess there.

    `parents` are those of a `Proposal`, first children first and depth first. `tokens` is how many
    a round emits on average, in so many `milliseconds`.
    """

    parents: list[int]
    tokens: float
    milliseconds: float


def best_shape(
    profile: Profile,
    target_ms: Callable[[int], float],
    draft_ms: Callable[[int], float],
    nodes: int,
) -> Shape:
    """The tree of at most `nodes` nodes behind the root with the most tokens per millisecond.

    ``profile[d][c]`` is the probability that the c-th child of an accepted node of depth d is
    accepted, which of siblings at most one is; the profile ends where trees may not go on.
    `target_ms` is what a step of so many rows costs, one more than there are nodes; `draft_ms` is
    what so many levels of drafting cost, of 0 levels too: no node at all is among the choices.
    Takes O(L^2 B n^2) for L levels of B children.
    """
    best = Shape([], 1.0, draft_ms(0) + target_ms(1))
    for levels in range(1, len(profile) + 1):
        forest = _Forest.of(profile[:levels], nodes)
        for size, accepted in enumerate(forest.values):
            tokens, milliseconds = 1.0 + float(accepted), draft_ms(levels) + target_ms(size + 1)
            if tokens * best.milliseconds > best.tokens * milliseconds:
                best = Shape(forest.parents(size), tokens, milliseconds)
    return best


@dataclass(frozen=True)
class _Forest:
    """What is best behind the root, for every number of nodes in all.

    ``values[m]`` are the accepted tokens to expect of m nodes. Where m nodes are left for the
    children from the c-th on of a node of depth d, ``shares[d][c][m]`` go to the c-th and what is
    below it.
    """

    values: _Values
    shares: list[list[_Sizes]]

    @classmethod
    def of(cls, profile: Profile, nodes: int) -> _Forest:
        """From the deepest level up, and from the last child to the first."""
        forest = np.zeros(1)
        shares: list[list[_Sizes]] = []
        for probabilities in reversed(profile):
            subtree = 1.0 + forest  # its node and what is below: 1 node, 2 nodes, ...
            forest = np.zeros(1)
            level: list[_Sizes] = []
            for probability in reversed(probabilities):
                forest, share = _join(probability * subtree, forest, nodes)
                level.append(share)
            shares.append(level[::-1])
        return cls(forest, shares[::-1])

    def parents(self, size: int) -> list[int]:
        """Of the best tree of `size` nodes."""
        found: list[int] = []
        self._append(found, 0, 0, size)
        return found

    def _append(self, found: list[int], parent: int, depth: int, size: int) -> None:
        """The `size` nodes below a node of some depth."""
        child = 0
        while size:
            share = int(self.shares[depth][child][size])
            found.append(parent)
            self._append(found, len(found), depth + 1, share - 1)
            child, size = child + 1, size - share


def _join(subtree: _Values, rest: _Values, nodes: int) -> tuple[_Values, _Sizes]:
    """The best split of 0, 1, ... nodes between a child's subtree and its later siblings.

    ``subtree[y - 1]`` is what y nodes are worth to the child, ``rest[r]`` what r are to the others.
    Without this child there are no later ones: 0 nodes are the only ones it gets nothing of.
    """
    values = np.full(min(nodes, len(subtree) + len(rest) - 1) + 1, -np.inf)
    shares = np.zeros(len(values), np.int64)
    values[0] = 0.0
    for share, value in enumerate(subtree[: len(values) - 1], start=1):
        worth = value + rest[: len(values) - share]
        into = slice(share, share + len(worth))
        better = worth > values[into]
        values[into][better] = worth[better]
        shares[into][better] = share
    return values, shares
