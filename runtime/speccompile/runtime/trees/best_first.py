"""The tree of the likeliest paths, grown best first.

A node is worth the probability that the path to it stands. With probabilities that are calibrated,
the tree of n nodes that are worth most has the most expected tokens of all trees of n nodes, and
it is a tree: a node is worth no more than its parent and than the siblings before it. For proposals
that follow from the context; a drawn token must not decide whether it is verified.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

__all__ = ["Candidate", "GrownTree", "Node", "grow"]

Candidate = tuple[int, float]
"""A token, and the probability that it stands if the path before it does."""


@dataclass(eq=False)
class Node:
    """A node of a tree that grows; the root has no parent, and a token that is not the tree's.

    `score` is the probability that the path to it stands. `greedy` are the nodes that the best
    candidate of every step leads to: a draft that decodes a chain has rows for these alone.
    """

    parent: Node | None = None
    token: int = -1
    score: float = 1.0
    depth: int = 0
    greedy: bool = True
    children: list[Node] = field(default_factory=list["Node"])

    def path(self) -> list[int]:
        """The tokens from behind the root to the node."""
        tokens: list[int] = []
        node = self
        while node.parent is not None:
            tokens.append(node.token)
            node = node.parent
        return tokens[::-1]


@dataclass(frozen=True)
class GrownTree:
    """A tree with the greedy path first, as the nodes 1, 2, ..., and then depth first.

    `tokens` and `parents` are those of a `Proposal`: the root is node 0, and index i is node i + 1.
    ``scores[i]`` is the probability that the path to that node stands; their sum is how many tokens
    the round can expect to be accepted.
    """

    tokens: list[int] = field(default_factory=list[int])
    parents: list[int] = field(default_factory=list[int])
    scores: list[float] = field(default_factory=list[float])


def grow(
    expand: Callable[[Node], Iterable[Candidate]], nodes: int, price: float = 0.0
) -> GrownTree:
    """The at most `nodes` nodes that are worth most, each more than `price`.

    `expand` gives the candidates behind a node, the likeliest first, and none where it knows none:
    off the greedy path, or too deep. It is asked once for the root and for every node of the tree,
    and of its candidates no more are taken than become nodes, and one. Takes O(n log n)
    comparisons: what leaves the heap lets two in, its first child and its next sibling.
    """
    root = Node()
    heap: list[tuple[float, int, Node, int, Iterator[Candidate]]] = []
    ages = count()  # of what is worth the same, the first offered goes first

    def offer(parent: Node, candidates: Iterator[Candidate]) -> None:
        best = next(candidates, None)
        if best is not None:
            token, probability = best
            score = parent.score * probability
            heappush(heap, (-score, next(ages), parent, token, candidates))

    offer(root, iter(expand(root)))
    for _ in range(nodes):
        if not heap or heap[0][0] >= -price:
            break
        negative, _, parent, token, siblings = heappop(heap)
        greedy = parent.greedy and not parent.children
        node = Node(parent, token, -negative, parent.depth + 1, greedy)
        parent.children.append(node)
        offer(node, iter(expand(node)))
        offer(parent, siblings)
    return _depth_first(root)


def _depth_first(root: Node) -> GrownTree:
    tree = GrownTree()
    stack = [(child, 0) for child in reversed(root.children)]
    while stack:
        node, parent = stack.pop()
        tree.tokens.append(node.token)
        tree.parents.append(parent)
        tree.scores.append(node.score)
        number = len(tree.tokens)
        stack += [(child, number) for child in reversed(node.children)]
    return tree
