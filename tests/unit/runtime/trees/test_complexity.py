"""How the work grows with the nodes of a tree, by counting it; nothing here looks at a clock.

O(n log n) holds for building a tree, and for attention among the rows of a bushy one. It holds
neither for a chain nor for one tree's mask words beyond a fixed width, and the tests say so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.runtime.trees.best_first import Candidate, Node, grow
from speccompile.runtime.trees.masks import WORD, ancestor_words
from speccompile.runtime.trees.prefix import merge
from tests.unit.runtime.trees.attention import Rows, dense, gathered

SIZES = [64, 128, 256, 512, 1024, 2048, 4096]
NEARLY_LINEAR = 1.2
CHANNELS = 16


@dataclass
class Tally:
    operations: int = 0


class Token(int):
    """Counts how often it is hashed or compared."""

    def __new__(cls, value: int, tally: Tally) -> Token:
        made = super().__new__(cls, value)
        made.tally = tally
        return made

    tally: Tally

    def __hash__(self) -> int:
        self.tally.operations += 1
        return int.__hash__(self)

    def __eq__(self, other: object) -> bool:
        self.tally.operations += 1
        return int.__eq__(self, other)


class Score(float):
    """Counts what is computed from it and every comparison."""

    def __new__(cls, value: float, tally: Tally) -> Score:
        tally.operations += 1
        made = super().__new__(cls, value)
        made.tally = tally
        return made

    tally: Tally

    def __mul__(self, other: float) -> Score:
        return Score(float(self) * float(other), self.tally)

    __rmul__ = __mul__

    def __neg__(self) -> Score:
        return Score(-float(self), self.tally)

    def __eq__(self, other: object) -> bool:
        self.tally.operations += 1
        return float.__eq__(self, other)

    __hash__ = float.__hash__

    def __lt__(self, other: float) -> bool:
        self.tally.operations += 1
        return float.__lt__(self, other)

    def __ge__(self, other: float) -> bool:
        self.tally.operations += 1
        return float.__ge__(self, other)


def slope(operations: Callable[[int], int], sizes: Sequence[int] = SIZES) -> float:
    """The power of n that the operations grow with."""
    counts = [operations(nodes) for nodes in sizes]
    return float(np.polyfit(np.log(sizes), np.log(counts), 1)[0])


def balanced(nodes: int, children: int) -> NDArray[np.int64]:
    """Level by level, every row with as many children."""
    parents = (np.arange(nodes) - 1) // children
    parents[0] = -1
    return parents


@pytest.mark.parametrize("children", [2, 4])
def test_merging_takes_two_look_ups_a_token(children: int) -> None:
    def operations(tokens: int) -> int:
        tally, rng = Tally(), np.random.default_rng(tokens)
        chains = rng.integers(0, children, (tokens // 8, 8)).tolist()
        tree = merge([[Token(token, tally) for token in chain] for chain in chains])
        assert len(tree.tokens) <= tokens
        # At most two hashes and a comparison; comparisons of other keys' hashes are rare.
        assert tokens <= tally.operations <= 3.1 * tokens
        return tally.operations

    assert slope(operations) <= NEARLY_LINEAR


def _grown(nodes: int, children: int, build: Callable[..., object]) -> int:
    """What a builder does with scores for a tree of random candidates."""
    tally, rng = Tally(), np.random.default_rng(nodes)

    def expand(node: Node) -> list[Candidate]:
        probabilities = np.sort(rng.dirichlet(np.ones(children)))[::-1]
        return [(rank, Score(each, tally)) for rank, each in enumerate(probabilities.tolist())]

    build(expand, nodes)
    return tally.operations


@pytest.mark.parametrize("children", [2, 3, 8])
def test_growing_is_nearly_linear(children: int) -> None:
    assert slope(lambda nodes: _grown(nodes, children, grow)) <= NEARLY_LINEAR


def test_growing_without_a_heap_would_not_be() -> None:
    def search(expand: Callable[[Node], list[Candidate]], nodes: int) -> None:
        waiting = [Node(token=token, score=score) for token, score in expand(Node())]
        for _ in range(nodes):
            best = min(waiting, key=lambda node: -node.score)
            waiting.remove(best)
            waiting += [Node(best, token, best.score * each) for token, each in expand(best)]

    assert slope(lambda nodes: _grown(nodes, 3, search), SIZES[:4]) > 1.7


def test_mask_words_are_linear_at_a_fixed_width() -> None:
    def operations(nodes: int) -> int:
        trees = [ancestor_words(balanced(WORD, 2)) for _ in range(nodes // WORD)]
        return sum(words.size for words in trees)

    assert slope(operations) == pytest.approx(1.0)


def test_mask_words_of_one_tree_are_a_64th_of_a_dense_mask() -> None:
    counts = {nodes: ancestor_words(balanced(nodes, 2)).size for nodes in SIZES}
    assert counts == {nodes: nodes * nodes // WORD for nodes in SIZES}


def _rows(nodes: int) -> Rows:
    return np.random.default_rng(nodes).normal(size=(3, nodes, CHANNELS)).astype(np.float32)


@pytest.mark.parametrize("children", [2, 3, 4])
def test_gathering_ancestors_is_nearly_linear_on_bushy_trees(children: int) -> None:
    def operations(nodes: int) -> int:
        return gathered(_rows(nodes), balanced(nodes, children))[1]

    assert slope(operations) <= NEARLY_LINEAR


@pytest.mark.parametrize(("attention", "children"), [(dense, 2), (gathered, 1)])
def test_dense_attention_and_chains_are_quadratic(
    attention: Callable[[Rows, NDArray[np.int64]], tuple[Rows, int]], children: int
) -> None:
    def operations(nodes: int) -> int:
        return attention(_rows(nodes), balanced(nodes, children))[1]

    assert slope(operations, SIZES[:5]) == pytest.approx(2.0, abs=0.02)


@pytest.mark.parametrize("children", [1, 2, 3, 8])
@pytest.mark.parametrize("nodes", [1, 64, 1000])
def test_gathering_gives_what_dense_attention_gives(nodes: int, children: int) -> None:
    rows, parents = _rows(nodes), balanced(nodes, children)
    expected, found = dense(rows, parents)[0], gathered(rows, parents)[0]
    assert found.dtype == expected.dtype == np.float32
    assert np.abs(found - expected).max() <= 1e-6 * np.abs(expected).max()
