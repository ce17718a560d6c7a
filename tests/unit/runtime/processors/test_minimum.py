"""Output does not end before it is long enough."""

from __future__ import annotations

import numpy as np
import pytest

from speccompile.runtime.errors import RequestError
from speccompile.runtime.processors.minimum import MinNewTokens


@pytest.mark.parametrize("new", range(5))
def test_stop_tokens_are_forbidden_until_there_are_enough(new: int) -> None:
    row = np.zeros(4, np.float32)
    MinNewTokens(3, prompt_length=2, stop_tokens={1, 3}, vocabulary=4).apply(row, [0] * (2 + new))
    assert np.isneginf(row).tolist() == ([False, True] * 2 if new < 3 else [False] * 4)


@pytest.mark.parametrize(
    ("count", "stop", "message"),
    [
        (-1, {1}, "min_new_tokens is -1; it cannot be negative"),
        (1, {4}, "stop_tokens names token 4; tokens are from 0 to 3"),
    ],
)
def test_what_makes_no_sense_is_refused(count: int, stop: set[int], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        MinNewTokens(count, 2, stop, 4)
    assert str(caught.value) == message
