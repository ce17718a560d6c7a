"""Merged chains are the set of their prefixes, in an order that keeps the first chain first."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.trees.prefix import PrefixTree, merge

Chains = list[list[int]]

some_chains = st.lists(st.lists(st.integers(0, 2), max_size=6), max_size=6)


def as_proposal(tree: PrefixTree) -> Proposal:
    return Proposal(tree.tokens, tree.parents, [None] * len(tree.tokens))


def prefixes(chains: Chains) -> list[list[int]]:
    """All that are not empty, in the order in which the chains bring them, each once."""
    found: list[list[int]] = []
    for chain in chains:
        for end in range(1, len(chain) + 1):
            if chain[:end] not in found:
                found.append(chain[:end])
    return found


def test_chains_share_what_they_begin_with() -> None:
    tree = merge([[7, 8, 9], [7, 5], [4], [7, 8, 9, 1]])
    assert tree.tokens == [7, 8, 9, 5, 4, 1]
    assert tree.parents == [0, 1, 2, 1, 0, 3]
    assert tree.sources == [[0, 1, 3], [0, 3], [0, 3], [1], [2], [3]]


def test_no_chains_make_no_tree() -> None:
    assert merge([]) == merge([[], []]) == merge([[1, 2]], nodes=0) == PrefixTree()


@settings(derandomize=True, max_examples=150, deadline=None)
@given(some_chains)
def test_there_is_a_node_for_every_prefix_and_no_other(chains: Chains) -> None:
    tree = merge(chains)
    proposal = as_proposal(tree)
    paths = [proposal.path(node) for node in range(1, len(tree.tokens) + 1)]
    assert paths == prefixes(chains)
    for path, parent, sources in zip(paths, tree.parents, tree.sources, strict=True):
        assert path[:-1] == proposal.path(parent)
        assert sources == [
            source for source, chain in enumerate(chains) if chain[: len(path)] == path
        ]


@settings(derandomize=True, max_examples=150, deadline=None)
@given(some_chains)
def test_the_first_chain_comes_first(chains: Chains) -> None:
    tree, first = merge(chains), chains[0] if chains else []
    assert tree.tokens[: len(first)] == first
    assert tree.parents[: len(first)] == list(range(len(first)))
    assert all(parent <= place for place, parent in enumerate(tree.parents))


@settings(derandomize=True, max_examples=150, deadline=None)
@given(some_chains, st.integers(0, 12))
def test_a_limit_keeps_the_first_nodes(chains: Chains, nodes: int) -> None:
    whole, tree = merge(chains), merge(chains, nodes)
    assert tree.tokens == whole.tokens[:nodes]
    assert tree.parents == whole.parents[:nodes]
    assert tree.sources == whole.sources[:nodes]


@settings(derandomize=True, max_examples=150, deadline=None)
@given(some_chains, st.lists(st.integers(0, 2), min_size=6, max_size=6))
def test_the_tree_is_followed_as_far_as_its_best_chain(chains: Chains, target: list[int]) -> None:
    proposal = as_proposal(merge(chains))
    node, accepted = 0, 0
    while following := [
        child
        for child in proposal.children(node)
        if accepted < len(target) and proposal.tokens[child - 1] == target[accepted]
    ]:
        (node,), accepted = following, accepted + 1
    assert accepted == max((agreed(chain, target) for chain in chains), default=0)


def agreed(chain: list[int], target: list[int]) -> int:
    """How many tokens they have in common from the beginning."""
    return next(
        (place for place, pair in enumerate(zip(chain, target, strict=False)) if len({*pair}) > 1),
        min(len(chain), len(target)),
    )
