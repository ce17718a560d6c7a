"""Log-probabilities are those of the raw row, to the last digit that matters."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from speccompile.runtime.logprobs import logprobs

ROW = np.random.default_rng(0).normal(scale=4, size=500).astype(np.float32)


@pytest.mark.parametrize("token", [0, 17, 499])
def test_they_are_the_log_softmax(token: int) -> None:
    expected = torch.log_softmax(torch.from_numpy(ROW).double(), 0)
    found = logprobs(ROW, token, 3)
    assert found.token == token
    assert found.logprob == pytest.approx(float(expected[token]), abs=1e-12)
    values, best = expected.topk(3)
    assert [token for token, _ in found.top] == best.tolist()
    assert [value for _, value in found.top] == pytest.approx(values.tolist(), abs=1e-12)


def test_a_sure_row_loses_nothing() -> None:
    row = np.array([1e4, 0.0, -1e4], np.float32)
    assert logprobs(row, 0, 0).logprob == 0.0
    assert logprobs(row, 2, 0).logprob == -2e4


def test_a_forbidden_token_has_no_probability_and_leaves_that_of_others() -> None:
    row = np.array([0.0, -np.inf, 0.0], np.float32)
    found = logprobs(row, 1, 3)
    assert found.logprob == -math.inf
    assert found.top == [(0, math.log(0.5)), (2, math.log(0.5)), (1, -math.inf)]


def test_of_equals_the_lowest_tokens_come_first() -> None:
    row = np.zeros(100, np.float32)
    row[[7, 3, 90]] = 1.0
    assert [token for token, _ in logprobs(row, 5, 6).top] == [3, 7, 90, 0, 1, 2]


@pytest.mark.parametrize(("count", "length"), [(0, 0), (1, 1), (9, 6)])
def test_no_more_are_given_than_there_are(count: int, length: int) -> None:
    row = np.arange(6, dtype=np.float32)
    assert len(logprobs(row, 0, count).top) == length


def test_the_row_is_left_as_it_was() -> None:
    row = ROW.copy()
    logprobs(row, 3, 5)
    np.testing.assert_array_equal(row, ROW)
