"""Several chains of guesses as one tree: what they share is proposed, and computed, once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

__all__ = ["PrefixTree", "merge"]


@dataclass(frozen=True)
class PrefixTree:
    """The distinct prefixes of some chains, one node each.

    `tokens` and `parents` are those of a `Proposal`: the root is node 0, and index i is node i + 1.
    ``sources[i]`` are the chains that go through that node, by their place in the order; the first
    of them brought it.
    """

    tokens: list[int] = field(default_factory=list[int])
    parents: list[int] = field(default_factory=list[int])
    sources: list[list[int]] = field(default_factory=list[list[int]])


def merge(chains: Sequence[Sequence[int]], nodes: int | None = None) -> PrefixTree:
    """The prefix tree of `chains` that follow from what is already known: none of them drawn.

    The nodes stand in the order in which the chains bring them, so a parent comes before its
    children, and the first chain is the nodes 1, 2, ..., whose rows are those of plain decoding.
    Of more than `nodes` nodes, the first stay: of every chain a prefix, of the first as much as
    fits. Takes at most two look-ups a token.
    """
    tree = PrefixTree()
    children: dict[tuple[int, int], int] = {}
    for source, chain in enumerate(chains):
        node = 0
        for token in chain:
            child = children.get((node, token))
            if child is None:
                if len(tree.tokens) == nodes:
                    break
                tree.tokens.append(token)
                tree.parents.append(node)
                tree.sources.append([])
                child = children[node, token] = len(tree.tokens)
            tree.sources[child - 1].append(source)
            node = child
    return tree
