from __future__ import annotations

import pytest

from speccompile.runtime.control.allowance import Allowance


def test_a_request_may_lose_a_step_and_a_half() -> None:
    allowance = Allowance()
    assert allowance.credit == 1.5
    allowance.book(1, 2.0)
    assert allowance.credit == pytest.approx(0.515)


def test_plain_tokens_earn_a_little() -> None:
    allowance = Allowance()
    for _ in range(100):
        allowance.book(1, 1.0)
    assert allowance.credit == pytest.approx(3.0)


def test_what_was_won_may_be_lost_up_to_a_limit() -> None:
    allowance = Allowance()
    for _ in range(100):
        allowance.book(5, 2.0)
    assert allowance.credit == 10.0


def test_a_part_of_what_was_won_stays_for_the_next_request() -> None:
    allowance = Allowance()
    allowance.book(5, 2.0)
    allowance.start()
    assert allowance.credit == 4.0
    # And nothing at all while a loss is not made good.
    allowance.book(1, 6.0)
    lost = allowance.credit
    allowance.start()
    assert allowance.credit == lost < 0.0
