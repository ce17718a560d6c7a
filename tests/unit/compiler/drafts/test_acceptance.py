from __future__ import annotations

import numpy as np
import pytest

from speccompile.compiler.drafts.acceptance import acceptance


def test_rounds_go_on_behind_what_stood() -> None:
    # Rounds: 1 1 0 | 0 | 1 (the end).
    text = np.array([False, True, True, False, False, True])
    found = acceptance([text], 3)
    assert found.positions == pytest.approx((2 / 3, 1.0, 0.0))
    assert found.tokens_a_round == pytest.approx(5 / 3)


def test_all_right_and_all_wrong() -> None:
    right = acceptance([np.ones(13, np.bool_)] * 2, 4)
    assert right.positions == (1.0,) * 4
    assert right.tokens_a_round == pytest.approx(12 / 3)
    wrong = acceptance([np.zeros(13, np.bool_)], 4)
    assert wrong.positions == (0.0,) * 4
    assert wrong.tokens_a_round == 1.0


def test_nothing_to_decode() -> None:
    assert acceptance([], 2).tokens_a_round == 0.0


def test_a_token_may_stand_in_one_place_of_a_chain_only() -> None:
    # Right as the first of a chain, wrong as the second; and the other way round.
    first = np.array([[True, False]] * 7)
    assert acceptance([first], 2).positions == (1.0, 0.0)
    assert acceptance([first], 2).tokens_a_round == pytest.approx(2.0)
    assert acceptance([~first], 2).tokens_a_round == 1.0
