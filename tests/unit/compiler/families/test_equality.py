"""The contract of every family computes what transformers computes, in every way it is stepped."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.compiler.decoder import tensor_shapes
from tests.contract_run import ContractRun, relative_error
from tests.families import CONTEXT, TINY, Tiny, tiny

TOLERANCE = 1e-5  # of the largest logit; measured: 5e-6 in four layers, 2e-6 else
CONTEXTS = (0, 1, 7, 40)  # the last is past the windows of 24
ROWS = (1, 6, 17)
TREE = (-1, 0, 0, 1, 1, 2, 4, 5)  # each row's parent


@cache
def model_of(name: str) -> Tiny:
    return tiny(name)


@cache
def weights_of(name: str) -> dict[str, NDArray[np.float32]]:
    model = model_of(name)
    return {tensor: model.read(tensor) for tensor in tensor_shapes(model.config)}


@cache
def sequences() -> NDArray[np.int64]:
    """Three of them, [3, CONTEXT]."""
    return np.random.default_rng(1).integers(3, 512, (3, CONTEXT))


@cache
def logits_of(name: str) -> NDArray[np.float32]:
    """What transformers makes of them, [3, CONTEXT, V]."""
    return np.stack([model_of(name).logits(sequence.tolist()) for sequence in sequences()])


def run_of(name: str, *, batch: int = 1) -> ContractRun:
    return ContractRun(model_of(name).config, weights_of(name), CONTEXT, batch=batch)


def assert_equal(found: NDArray[np.float32], expected: NDArray[np.float32]) -> None:
    assert found.shape == expected.shape
    assert relative_error(found, expected) <= TOLERANCE


@pytest.mark.parametrize("name", TINY)
def test_rows_of_any_number_after_any_context(name: str) -> None:
    run, tokens, expected = run_of(name), sequences()[:1], logits_of(name)[:1]
    for context in CONTEXTS:
        if context:
            found = run.append(tokens[:, :context], np.array([0]))
            assert_equal(found, expected[:, :context])
        for rows in ROWS:
            span = slice(context, context + rows)
            assert_equal(run.append(tokens[:, span], np.array([context])), expected[:, span])


@pytest.mark.parametrize("name", TINY)
def test_one_row_after_the_other_up_to_the_last_slot(name: str) -> None:
    run, tokens, expected = run_of(name), sequences()[:1], logits_of(name)[:1]
    run.append(tokens[:, :20], np.array([0]))
    for slot in range(20, CONTEXT):
        span = slice(slot, slot + 1)
        assert_equal(run.append(tokens[:, span], np.array([slot])), expected[:, span])


@pytest.mark.parametrize("name", TINY)
def test_a_batch_of_sequences_of_different_length(name: str) -> None:
    run, tokens, expected = run_of(name, batch=3), sequences(), logits_of(name)
    run.append(tokens[:, :40], np.zeros(3, np.int64))
    starts = np.array([0, 7, 40])
    spans = [slice(start, start + 6) for start in starts]
    rows = np.stack([tokens[i, span] for i, span in enumerate(spans)])
    found = run.append(rows, starts)
    assert_equal(found, np.stack([expected[i, span] for i, span in enumerate(spans)]))


@pytest.mark.parametrize("name", TINY)
def test_rows_of_a_tree_are_each_its_path_alone(name: str) -> None:
    context, tokens = 30, sequences()[0]
    paths: list[list[int]] = []
    for row, parent in enumerate(TREE):
        paths.append([*(paths[parent] if row else []), row])
    mask = np.zeros((1, len(TREE), CONTEXT), np.bool_)
    mask[..., :context] = True
    for row, path in enumerate(paths):
        mask[0, row, [context + ancestor for ancestor in path]] = True
    positions = np.array([[context + len(path) - 1 for path in paths]])
    rows = sequences()[1:2, : len(TREE)]
    run = run_of(name)
    run.append(tokens[None, :context], np.array([0]))
    found = run.append_tree(rows, np.array([context]), positions, mask)[0]
    for row, path in enumerate(paths):
        alone = model_of(name).logits([*tokens[:context].tolist(), *rows[0, path].tolist()])
        assert_equal(found[row], alone[-1])
