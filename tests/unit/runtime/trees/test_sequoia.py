"""The shape found is the best of all shapes, counted one by one."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

from speccompile.runtime.trees.best_first import Candidate, Node, grow
from speccompile.runtime.trees.sequoia import Shape, best_shape

Profile = list[list[float]]
Parents = list[int]

NODES = 6


@cache
def all_trees(nodes: int) -> list[Parents]:
    """Every ordered tree of so many nodes behind the root, each once (Catalan numbers)."""
    if nodes == 0:
        return [[]]
    return [tree for smaller in all_trees(nodes - 1) for tree in _one_more(smaller)]


def _one_more(parents: Parents) -> Iterator[Parents]:
    """Depth first, a node comes behind the last one or one of its ancestors."""
    node = len(parents)
    yield [*parents, node]
    while node:
        node = parents[node - 1]
        yield [*parents, node]


def ranks(parents: Parents) -> list[tuple[int, int]]:
    """Of every node but the root, the depth of its parent and its place among the siblings."""
    depths = [0]
    for parent in parents:
        depths.append(depths[parent] + 1)
    return [(depths[parent], parents[:place].count(parent)) for place, parent in enumerate(parents)]


def tokens(parents: Parents, profile: Profile) -> float | None:
    """What a round with this tree emits on average; None where the profile does not reach."""
    reached = [1.0]
    for parent, (depth, rank) in zip(parents, ranks(parents), strict=True):
        if depth >= len(profile) or rank >= len(profile[depth]):
            return None
        reached.append(reached[parent] * profile[depth][rank])
    return sum(reached)


def levels(parents: Parents) -> int:
    return max((depth + 1 for depth, _ in ranks(parents)), default=0)


class Machine:
    """Random costs: every row and every level adds something, and steps have a fixed part."""

    def __init__(self, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self._rows = 1.0 + np.cumsum(rng.exponential(rng.choice([0.01, 0.1, 0.5]), 99))
        self._levels = np.cumsum([0.0, *rng.exponential(rng.choice([0.01, 0.1, 0.5]), 99)])

    def target_ms(self, rows: int) -> float:
        return float(self._rows[rows])

    def draft_ms(self, levels: int) -> float:
        return float(self._levels[levels])

    def best(self, profile: Profile, nodes: int) -> Shape:
        return best_shape(profile, self.target_ms, self.draft_ms, nodes)

    def rate(self, parents: Parents, tokens: float) -> float:
        return tokens / (self.target_ms(len(parents) + 1) + self.draft_ms(levels(parents)))


def random_profile(seed: int, *, ranked: bool = False) -> Profile:
    rng = np.random.default_rng(seed)
    profile: Profile = []
    for _ in range(int(rng.integers(1, 5))):
        children = int(rng.integers(1, 5))
        level = rng.dirichlet([rng.choice([0.3, 1.0])] * (children + 1))[:-1].tolist()
        profile.append(sorted(level, reverse=True) if ranked else level)
    return profile


def test_there_are_as_many_trees_as_catalan_says() -> None:
    assert [len(all_trees(nodes)) for nodes in range(NODES + 1)] == [1, 1, 2, 5, 14, 42, 132]


@pytest.mark.parametrize("seed", range(60))
def test_no_small_tree_is_better(seed: int) -> None:
    profile, machine = random_profile(seed), Machine(seed)
    for nodes in (0, 1, 3, NODES):
        shape = machine.best(profile, nodes)
        assert len(shape.parents) <= nodes
        assert shape.tokens == pytest.approx(tokens(shape.parents, profile))
        assert shape.tokens / shape.milliseconds == pytest.approx(
            machine.rate(shape.parents, shape.tokens)
        )
        every = (tree for size in range(nodes + 1) for tree in all_trees(size))
        rates = [
            machine.rate(tree, expected)
            for tree in every
            if (expected := tokens(tree, profile)) is not None
        ]
        assert shape.tokens / shape.milliseconds == pytest.approx(max(rates))


def test_the_trees_are_not_all_alike() -> None:
    found = [tuple(Machine(seed).best(random_profile(seed), NODES).parents) for seed in range(60)]
    chains = [shape for shape in found if list(shape) == list(range(len(shape)))]
    assert len({*found}) > 10
    assert 0 < len(chains) < len(found)


@pytest.mark.parametrize("seed", range(10))
def test_where_ranks_are_in_order_it_is_the_tree_grown_best_first(seed: int) -> None:
    profile = random_profile(seed, ranked=True)

    def expand(node: Node) -> list[Candidate]:
        return list(enumerate(profile[node.depth])) if node.depth < len(profile) else []

    # Further rows cost nothing, so that as many are taken as there may be.
    shape = best_shape(profile, lambda rows: 1.0, lambda levels: 0.0, 30)
    assert shape.tokens == pytest.approx(1.0 + sum(grow(expand, 30).scores))


def test_a_likely_child_behind_an_unlikely_one_is_reached() -> None:
    # One node at a time, the first child looks like nothing worth having.
    profile = [[0.01, 0.9]]
    shape = best_shape(profile, lambda rows: 1.0 + 0.2 * (rows - 1), lambda levels: 0.0, 2)
    assert shape.parents == [0, 0]
    assert shape.tokens == pytest.approx(1.91)


def test_the_first_path_comes_first() -> None:
    profile = [[0.6, 0.3], [0.7, 0.2], [0.6, 0.1]]
    shape = best_shape(profile, lambda rows: 1.0, lambda levels: 0.0, 5)
    assert shape.parents == [0, 1, 2, 0, 4]
    assert shape.tokens == pytest.approx(1 + 0.6 + 0.42 + 0.252 + 0.3 + 0.21)


def test_nothing_is_drafted_that_does_not_pay() -> None:
    plain = best_shape([[0.5]], lambda rows: float(rows), lambda levels: 0.1 * levels, 10)
    assert plain == Shape([], 1.0, 1.0)
    assert best_shape([], lambda rows: 1.0, lambda levels: 0.0, 10).parents == []


def test_costly_levels_make_trees_wide_and_costly_rows_narrow() -> None:
    profile = [[0.5, 0.2, 0.1]] * 6
    wide = best_shape(profile, lambda rows: 1.0 + 0.01 * rows, lambda levels: 0.5 * levels, 40)
    narrow = best_shape(profile, lambda rows: 1.0 + 0.2 * rows, lambda levels: 0.001 * levels, 40)
    assert levels(wide.parents) == 1
    assert wide.parents == [0, 0, 0]
    assert narrow.parents == list(range(len(narrow.parents)))
