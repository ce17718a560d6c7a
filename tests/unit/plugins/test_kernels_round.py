from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from speccompile.plugins.launches import (
    LogitsType,
    commit_launches,
    draft_step_launches,
    keep_logits_launches,
    ring_words,
    uniforms_launches,
)
from speccompile.plugins.philox import uniform_bits
from tests.kernels import addresses, host_kernels

DRAFT, ACCEPT, EMIT = range(3)
Arrays = dict[str, NDArray[np.int64]]


@pytest.mark.parametrize("catch_up", [False, True])
@pytest.mark.parametrize("nodes", [1, 2, 5])
def test_a_drafted_round_makes_the_tokens_and_numbers_of_a_chain(
    nodes: int, catch_up: bool
) -> None:
    arrays = state(batch=3, nodes=nodes)
    if catch_up:
        arrays["catch_up"] = np.full((3, 2), -5)
    lengths, seeds, root = arrays["lengths"], arrays["seeds"], arrays["tokens"][:, 0].copy()
    drafted = [root]
    for step in range(nodes):
        rows = 2 if catch_up and step == 0 else 1
        arrays["draft_uniforms"] = np.full((3, rows, 2), -5)
        run_step(arrays, step)
        assert np.array_equal(drafted, arrays["tokens"][:, : step + 1].T)
        if step == nodes - 1:
            break
        inputs = arrays["catch_up" if rows == 2 else "draft_input"]
        assert (inputs[:, -1] == drafted[-1]).all()
        assert rows == 1 or (inputs[:, 0] == arrays["previous"]).all()
        assert (arrays["draft_lengths"] == lengths + step - (rows - 1)).all()
        expected = numbers(seeds, lengths, DRAFT, step + 1)
        assert (arrays["draft_uniforms"][:, -1, 1] == expected).all()
        arrays["draft_next_token"][:] = 10 * step + np.arange(3)
        drafted.append(arrays["draft_next_token"].copy())
    check_uniforms(arrays)


def test_uniforms_alone_leave_the_tokens() -> None:
    arrays = state(batch=2, nodes=40)
    before = arrays["tokens"].copy()
    host_kernels().run(uniforms_launches(2, 40, addresses(arrays)), threads=3)
    assert (arrays["tokens"] == before).all()
    check_uniforms(arrays)


def test_rounds_share_the_numbers_of_tokens_alone() -> None:
    rounds: list[Arrays] = []
    for root in range(6):
        arrays = state(batch=1, nodes=5)
        arrays["lengths"][:] = root
        host_kernels().run(uniforms_launches(1, 5, addresses(arrays)))
        rounds.append(arrays)
    accept, emit = np.moveaxis(np.stack([arrays["uniforms"][0] for arrays in rounds]), -1, 0)
    assert len(np.unique(accept)) == accept.size
    assert (emit[1:, :-1] == emit[:-1, 1:]).all()


def check_uniforms(arrays: Arrays) -> None:
    roots, nodes = arrays["lengths"][:, None], np.arange(arrays["tokens"].shape[1])
    seeds, found = arrays["seeds"][:, None], arrays["uniforms"]
    assert (found[..., 0] == numbers(seeds, roots, ACCEPT, nodes)).all()
    assert (found[..., 1] == numbers(seeds, roots + nodes + 1, EMIT)).all()


def numbers(
    seeds: NDArray[np.int64], positions: NDArray[np.int64], purpose: int, branch: ArrayLike = 0
) -> NDArray[np.int64]:
    seed = seeds[..., 0].astype(np.uint64)
    return uniform_bits(seed, positions, purpose, request=seeds[..., 1], branch=branch)


def run_step(arrays: Arrays, step: int) -> None:
    batch, nodes = arrays["tokens"].shape
    host_kernels().run(draft_step_launches(batch, step, nodes, addresses(arrays)))


def state(batch: int, nodes: int) -> Arrays:
    rng = np.random.default_rng(nodes)
    seeds = rng.integers(-(2**63), 2**63 - 1, (batch, 2))
    seeds[:, 1] = rng.integers(0, 2**32, batch)
    return {
        "tokens": rng.integers(0, 100, (batch, nodes)),
        "lengths": rng.integers(0, 2**34, batch),
        "previous": rng.integers(0, 100, batch),
        "seeds": seeds,
        "draft_input": np.full((batch, 1), -5),
        "draft_lengths": np.full(batch, -5),
        "draft_uniforms": np.full((batch, 1, 2), -5),
        "draft_next_token": np.full(batch, -5),
        "uniforms": np.full((batch, nodes, 2), -5),
    }


@pytest.mark.parametrize(
    ("logits_type", "dtype"), [("float16", np.float16), ("float32", np.float32)]
)
@pytest.mark.parametrize("vocabulary", [64, 77])
def test_the_last_row_of_logits_is_kept(
    logits_type: LogitsType, dtype: type[np.floating], vocabulary: int
) -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=(3, 2, vocabulary)).astype(dtype)
    kept = np.zeros((3, 5, vocabulary), dtype)
    expected = kept.copy()
    expected[:, 3] = logits[:, -1]
    arguments = addresses({"logits": logits, "draft_logits": kept})
    sizes = 3, 3, 2, 5, vocabulary
    host_kernels().run(keep_logits_launches(logits_type, *sizes, arguments), threads=2)
    np.testing.assert_array_equal(kept, expected)


@pytest.mark.parametrize("threads", [1, 3])
def test_commit_moves_what_goes_on_and_tells_the_host(threads: int) -> None:
    """Of four sequences one was stopped and one has no valid token."""
    nodes, slots = 4, 3
    arrays = {
        "path": np.array([[0, 1, -1, -1], [0, -1, -1, -1], [0, 1, 2, 3], [0, 1, 3, -1]]),
        "count": np.array([2, 1, 4, 3]),
        "next_token": np.array([50, -1, 52, 53]),
        "emitted": np.array(
            [[11, 50, -1, -1], [-1, -1, -1, -1], [31, 32, 33, 52], [41, 43, 53, -1]]
        ),
        "stopped": np.array([0, 0, 1, 0]),
        "tokens": np.arange(10, 50).reshape(4, 10)[:, :nodes].copy(),
        "lengths": np.array([5, 6, 7, 8]),
        "previous": np.array([1, 2, 3, 4]),
        "round": np.array([7]),
        "ring": np.zeros((4, slots, ring_words(nodes)), np.int64),
    }
    host_kernels().run(commit_launches(4, nodes, slots, addresses(arrays)), threads)
    assert arrays["lengths"].tolist() == [7, 6, 7, 11]
    assert arrays["previous"].tolist() == [11, 2, 3, 43]
    assert arrays["tokens"][:, 0].tolist() == [50, 20, 30, 53]
    assert arrays["round"].tolist() == [8]
    records = arrays["ring"][:, 7 % slots]
    assert records.tolist() == [
        [8, 2, 11, 50, -1, -1],
        [8, 0, -1, -1, -1, -1],
        [8, 0, -1, -1, -1, -1],
        [8, 3, 41, 43, 53, -1],
    ]
    assert np.count_nonzero(arrays["ring"]) == np.count_nonzero(records)
