import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from speccompile.plugins.tree import ancestors, compact_rows, depths, tree_mask
from tests.trees import random_parents

Nodes = NDArray[np.int64]


@st.composite
def trees(draw: st.DrawFn) -> Nodes:
    """A root, and behind it nodes with an earlier parent or with none: padding."""
    size = draw(st.integers(1, 9))
    parents = [-1, *(draw(st.integers(-1, node - 1)) for node in range(1, size))]
    return np.array(parents, np.int64)


def way_up(parents: Nodes, node: int) -> list[int]:
    """The node and what is above it, by walking."""
    way = [node]
    while parents[way[-1]] >= 0:
        way.append(int(parents[way[-1]]))
    return way


@given(trees())
def test_depths_and_ancestors_are_those_of_the_way_up(parents: Nodes) -> None:
    ways = [way_up(parents, node) for node in range(len(parents))]
    assert depths(parents).tolist() == [len(way) - 1 for way in ways]
    seen = ancestors(parents)
    assert [np.flatnonzero(row).tolist() for row in seen] == [sorted(way) for way in ways]


@given(trees(), st.integers(0, 6), st.integers(0, 4), st.integers(0, 5))
def test_masks_say_which_slots_a_node_sees(
    parents: Nodes, length: int, spare: int, window: int
) -> None:
    capacity = length + len(parents) + spare
    positions, mask, sliding = tree_mask(parents[None], np.array([length]), capacity, window)
    assert mask.shape == sliding.shape == (1, 1, len(parents), capacity)
    for node in range(len(parents)):
        way = way_up(parents, node)
        position = length + len(way) - 1
        assert positions[0, node] == position
        # Slots and the positions of what they hold.
        seen = {slot: slot for slot in range(length)}
        seen |= {length + each: length + len(way_up(parents, each)) - 1 for each in way}
        assert np.flatnonzero(mask[0, 0, node]).tolist() == sorted(seen)
        near = [slot for slot, at in seen.items() if not window or at > position - window]
        assert np.flatnonzero(sliding[0, 0, node]).tolist() == sorted(near)


def test_a_chain_sees_what_a_causal_mask_shows() -> None:
    chain = np.arange(-1, 3)[None]
    _, mask, sliding = tree_mask(chain, np.array([2]), 8, window=3)
    causal = np.tri(4, 8, 2, np.bool_)
    assert np.array_equal(mask[0, 0], causal)
    assert np.array_equal(sliding[0, 0], causal & ~np.tri(4, 8, -1, np.bool_))


def test_rows_beyond_the_capacity_are_not_in_the_mask() -> None:
    _, mask, _ = tree_mask(np.array([[-1, 0, 1, 2]]), np.array([3]), 5, 0)
    assert mask[0, 0].sum(-1).tolist() == [4, 5, 5, 5]


@pytest.mark.parametrize("heads", [1, 2, 3])
def test_rows_of_the_path_move_to_the_front(heads: int) -> None:
    rng = np.random.default_rng(heads)
    cache = rng.normal(size=(3, heads, 12, 4)).astype(np.float16)
    path = np.array([[0, 2, 5, -1, -1, -1], [0, -1, -1, -1, -1, -1], [0, 1, 2, 3, 4, 5]])
    count, lengths = np.array([3, 1, 6]), np.array([4, 0, 6])
    compacted = compact_rows(cache, path, count, lengths)
    expected = cache.copy()
    for sequence in range(3):
        for place in range(count[sequence]):
            source = lengths[sequence] + path[sequence, place]
            expected[sequence, :, lengths[sequence] + place] = cache[sequence, :, source]
    assert compacted.dtype == cache.dtype
    assert np.array_equal(compacted, expected)


def test_an_empty_path_moves_nothing() -> None:
    cache = np.arange(24.0).reshape(1, 2, 6, 2)
    nothing = np.full((1, 3), -1)
    assert np.array_equal(compact_rows(cache, nothing, np.array([0]), np.array([2])), cache)


def test_random_trees_come_in_order_behind_their_given_nodes() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        given_nodes = int(rng.integers(1, 9))
        parents = random_parents(rng, 8, min(given_nodes, 8))
        assert (parents < np.arange(8)).all()
        assert parents[: min(given_nodes, 8)].tolist() == list(range(-1, min(given_nodes, 8) - 1))
