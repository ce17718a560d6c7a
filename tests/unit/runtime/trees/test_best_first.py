"""Trees grown best first hold the likeliest paths, the greedy one in front."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.trees.best_first import Candidate, GrownTree, Node, grow

seeds, sizes = st.integers(0, 2**32 - 1), st.integers(0, 20)


class Law:
    """Random candidates behind every path of up to `depth` tokens."""

    def __init__(self, seed: int, children: int = 3, depth: int = 4) -> None:
        self._seed, self._children, self._depth = seed, children, depth

    def candidates(self, path: list[int]) -> list[Candidate]:
        if len(path) >= self._depth:
            return []
        rng = np.random.default_rng([self._seed, *path])
        probabilities = rng.dirichlet([0.5] * (self._children + 1))[:-1]
        return list(zip(rng.permutation(9).tolist(), sorted(probabilities)[::-1], strict=False))

    def __call__(self, node: Node) -> list[Candidate]:
        return self.candidates(node.path())

    def scores(self, path: list[int], score: float = 1.0) -> Iterator[float]:
        """Of every node below a path."""
        for token, probability in self.candidates(path):
            yield score * probability
            yield from self.scores([*path, token], score * probability)


def as_proposal(tree: GrownTree) -> Proposal:
    return Proposal(tree.tokens, tree.parents, [None] * len(tree.tokens))


@settings(derandomize=True, max_examples=100, deadline=None)
@given(seeds, sizes)
def test_no_tree_of_as_many_nodes_is_worth_more(seed: int, nodes: int) -> None:
    law = Law(seed)
    tree = grow(law, nodes)
    best = sorted(law.scores([]), reverse=True)[:nodes]
    assert sorted(tree.scores, reverse=True) == pytest.approx(best)


@settings(derandomize=True, max_examples=100, deadline=None)
@given(seeds, sizes)
def test_scores_are_those_of_the_paths(seed: int, nodes: int) -> None:
    law = Law(seed)
    tree = grow(law, nodes)
    proposal = as_proposal(tree)
    for place, score in enumerate(tree.scores):
        path = proposal.path(place + 1)
        steps = [dict(law.candidates(path[:end]))[token] for end, token in enumerate(path)]
        assert score == pytest.approx(np.prod(steps))


@settings(derandomize=True, max_examples=100, deadline=None)
@given(seeds, sizes)
def test_the_greedy_path_comes_first_and_children_by_rank(seed: int, nodes: int) -> None:
    law = Law(seed)
    proposal = as_proposal(grow(law, nodes))
    assert all(parent <= place for place, parent in enumerate(proposal.parents))
    for node in range(len(proposal.tokens) + 1):
        children = proposal.children(node)
        ranked = [token for token, _ in law.candidates(proposal.path(node))]
        # A prefix of the candidates, and the first of them right behind its parent.
        assert [proposal.tokens[child - 1] for child in children] == ranked[: len(children)]
        assert children[:1] in ([], [node + 1])


@settings(derandomize=True, max_examples=100, deadline=None)
@given(seeds, st.floats(0.0, 0.5))
def test_what_is_worth_no_more_than_its_price_stays_out(seed: int, price: float) -> None:
    law = Law(seed)
    worth = [score for score in law.scores([]) if score > price]
    assert sorted(grow(law, 1000, price).scores) == pytest.approx(sorted(worth))


def test_what_cannot_stand_is_no_node() -> None:
    tree = grow(lambda node: [(1, 1.0), (2, 0.0)] if node.depth < 3 else (), 10)
    assert tree == GrownTree([1, 1, 1], [0, 1, 2], [1.0, 1.0, 1.0])


def test_of_equals_the_first_offered_comes_first() -> None:
    tree = grow(lambda node: [(5, 0.5), (6, 0.5)] if node.depth == 0 else [(7, 1.0)], 3)
    assert (tree.tokens, tree.parents) == ([5, 7, 6], [0, 1, 0])


def test_a_draft_of_a_chain_branches_from_its_own_rows_alone() -> None:
    rows: list[list[Candidate]] = [[(4, 0.6), (5, 0.3)], [(6, 0.5), (7, 0.45)], [(8, 0.9)]]

    def expand(node: Node) -> list[Candidate]:
        assert node.path() == [4, 6, 8][: node.depth] or not node.greedy
        return rows[node.depth] if node.greedy and node.depth < len(rows) else []

    tree = grow(expand, 10)
    assert tree.tokens == [4, 6, 8, 7, 5]
    assert tree.parents == [0, 1, 2, 1, 0]
    assert tree.scores == pytest.approx([0.6, 0.3, 0.27, 0.27, 0.3])


@pytest.mark.parametrize("nodes", [0, 1, 7, 30])
def test_candidates_are_asked_for_as_they_are_needed(nodes: int) -> None:
    law, asked, taken = Law(3), list[Node](), list[Candidate]()

    def expand(node: Node) -> Iterator[Candidate]:
        asked.append(node)
        for candidate in law(node):
            taken.append(candidate)
            yield candidate

    tree = grow(expand, nodes)
    assert len(tree.tokens) == nodes
    assert len(asked) == len({id(node) for node in asked})
    # Each node lets two candidates in: that of its own and its next sibling; the root, one.
    assert len(taken) <= 2 * nodes + 1
    assert len(asked) <= nodes + 1


def test_without_candidates_there_is_no_tree() -> None:
    assert grow(lambda node: (), 5) == GrownTree()
