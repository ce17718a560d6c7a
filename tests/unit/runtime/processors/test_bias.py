"""A bias is added, neither more nor less."""

from __future__ import annotations

import numpy as np
import pytest

from speccompile.runtime.errors import RequestError
from speccompile.runtime.processors.bias import LogitBias


def test_each_tokens_number_is_added() -> None:
    row = np.array([1.0, 2.0, -np.inf, 3.0], np.float32)
    LogitBias({0: 100, 2: 50.0, 3: -100.0}, 4).apply(row, [])
    assert row.tolist() == [101.0, 2.0, -np.inf, -97.0]


def test_no_bias_changes_nothing() -> None:
    row = np.array([1.0, 2.0], np.float32)
    LogitBias({}, 2).apply(row, [1])
    assert row.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("bias", "message"),
    [
        ({4: 1.0}, "logit_bias names token 4; tokens are from 0 to 3"),
        ({-1: 1.0}, "logit_bias names token -1; tokens are from 0 to 3"),
        ({2: 100.5}, "logit_bias of token 2 is 100.5; it must be from -100 to 100"),
        ({2: float("nan")}, "logit_bias of token 2 is nan; it must be from -100 to 100"),
    ],
)
def test_what_cannot_be_added_is_refused(bias: dict[int, float], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        LogitBias(bias, 4)
    assert str(caught.value) == message
