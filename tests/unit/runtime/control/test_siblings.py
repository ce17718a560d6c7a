from __future__ import annotations

import numpy as np

from speccompile.runtime.control.siblings import Siblings
from speccompile.runtime.control.survival import Trial

AHEAD = np.array([0.5, 0.45, 0.4])


def level_price(price: float) -> frozenset[int]:
    return Siblings().levels(AHEAD, 4, lambda rows: price)


def test_a_second_guess_stands_where_the_first_falls_most() -> None:
    # The root's first guess falls in one of two cases, the others' in one of twenty.
    assert level_price(0.1) == {0}
    assert level_price(0.0) == {0, 1, 2}
    assert level_price(0.5) == frozenset()


def test_every_row_has_its_own_price() -> None:
    assert Siblings().levels(AHEAD, 4, lambda rows: 0.0 if rows < 6 else 1.0) == {0, 1}


def test_what_never_stands_is_given_up() -> None:
    siblings = Siblings()
    for _ in range(50):
        siblings.learn(Trial(0, True, False))
    assert siblings.levels(AHEAD, 4, lambda rows: 0.1) == frozenset()
    for _ in range(50):
        siblings.learn(Trial(0, True, True))
    assert siblings.levels(AHEAD, 4, lambda rows: 0.1) == {0}


def test_where_there_was_none_nothing_is_learned() -> None:
    siblings = Siblings()
    for _ in range(50):
        siblings.learn(Trial(0, True, None))
    assert siblings.levels(AHEAD, 4, lambda rows: 0.1) == {0}
