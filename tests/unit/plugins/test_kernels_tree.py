from __future__ import annotations

import numpy as np
import pytest

from speccompile.plugins.launches import compact_launches, tree_mask_launches
from speccompile.plugins.schema import MOST_NODES
from speccompile.plugins.tree import compact_rows, tree_mask
from tests.kernels import addresses, host_kernels
from tests.trees import random_parents


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("window", [0, 1, 5, 1000])
@pytest.mark.parametrize("capacity", [40, 61, 128])
def test_masks_are_the_oracles(capacity: int, window: int, threads: int) -> None:
    for seed in range(8 if threads == 1 else 2):
        rng = np.random.default_rng(seed)
        nodes = int(rng.integers(1, 24))
        parents = np.stack([random_parents(rng, nodes) for _ in range(3)])
        check_mask(parents, rng.integers(0, capacity - 4, 3), capacity, window, threads)


def test_mask_of_the_largest_tree() -> None:
    rng = np.random.default_rng(0)
    for parents in (random_parents(rng, MOST_NODES), np.arange(-1, MOST_NODES - 1)):
        check_mask(parents[None], np.array([3]), MOST_NODES + 4, 100)


def check_mask(
    parents: np.ndarray, lengths: np.ndarray, capacity: int, window: int, threads: int = 1
) -> None:
    batch, nodes = parents.shape
    names = "position_ids", "attention_mask", "sliding_mask"
    expected = dict(zip(names, tree_mask(parents, lengths, capacity, window), strict=True))
    outputs = {name: np.full_like(array, 99 % 2) for name, array in expected.items()}
    arguments = addresses({"parents": parents, "lengths": lengths, **outputs})
    host_kernels().run(tree_mask_launches(batch, nodes, capacity, window, arguments), threads)
    for name in names:
        np.testing.assert_array_equal(outputs[name], expected[name], err_msg=name)


def test_an_absent_sliding_mask_is_not_written() -> None:
    parents, lengths = np.array([[-1, 0, 0]]), np.array([5])
    expected = tree_mask(parents, lengths, 16, 0)
    positions, mask = (np.empty_like(array) for array in expected[:2])
    arguments = {"parents": parents, "lengths": lengths, "position_ids": positions}
    named = addresses({**arguments, "attention_mask": mask})
    host_kernels().run(tree_mask_launches(1, 3, 16, 0, named))
    np.testing.assert_array_equal(mask, expected[1])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize(("heads", "channels"), [(1, 8), (3, 40)])
def test_rows_are_compacted_in_place(heads: int, channels: int, threads: int) -> None:
    rng = np.random.default_rng(1)
    batch, nodes, capacity = 4, 12, 40
    lengths = rng.integers(0, capacity - nodes, batch)
    count = np.array([1, nodes, 4, 7])
    path = np.full((batch, nodes), -1)
    for row, size in zip(path, count, strict=True):
        row[:size] = [0, *sorted(rng.choice(np.arange(1, nodes), size - 1, replace=False))]
    shape = batch, heads, capacity, channels
    caches = [rng.normal(size=shape).astype(np.float16) for _ in range(5)]
    expected = [compact_rows(cache, path, count, lengths) for cache in caches]
    pointers = np.array([cache.ctypes.data for cache in caches])
    arguments = addresses({"path": path, "count": count, "lengths": lengths})
    sizes = batch, nodes, heads, capacity, 2 * channels
    host_kernels().run(
        compact_launches(*sizes, pointers.ctypes.data, len(caches), arguments), threads
    )
    np.testing.assert_array_equal(caches, expected)
