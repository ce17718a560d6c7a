"""Measured costs and acceptance give the draft length, and whether to draft at all."""

from __future__ import annotations

import pytest

from speccompile.runtime.costmodel import (
    best_draft_length,
    plain_step_ms,
    predicted_speedup,
    step_ms,
)

TARGET = {1: 10.0, 2: 11.0, 4: 12.0, 8: 20.0}
DRAFT = {1: 1.0, 2: 1.5}


def test_a_step_costs_what_was_measured_or_lies_between() -> None:
    assert step_ms(TARGET, 4) == 12.0
    assert step_ms(TARGET, 3) == pytest.approx(11.5)
    assert step_ms(TARGET, 6) == pytest.approx(16.0)
    assert step_ms(TARGET, 16) == pytest.approx(40.0)
    assert step_ms({}, 1) == 0.0


def test_plain_decoding_is_a_step_of_one_row() -> None:
    assert plain_step_ms(TARGET) == 10.0


def speedup(length: int, acceptance: float, *, shares_cache: bool = True) -> float:
    return predicted_speedup(length, [acceptance], DRAFT, TARGET, shares_cache=shares_cache)


def test_the_speedup_is_tokens_over_time() -> None:
    # Three proposals of which all stand: 4 tokens in 3 draft steps and one of 4 rows.
    assert speedup(3, 1.0) == pytest.approx(4 * 10.0 / (3 + 12.0))
    assert speedup(0, 1.0) == 1.0
    # 1 + 1/2 + 1/4 tokens.
    assert speedup(2, 0.5) == pytest.approx(1.75 * 10.0 / (2 + 11.5))


def test_a_draft_with_a_cache_of_its_own_first_follows() -> None:
    assert speedup(3, 1.0, shares_cache=False) == pytest.approx(4 * 10.0 / (3.5 + 12.0))
    assert speedup(0, 1.0, shares_cache=False) == 1.0


def best(acceptance: list[float], draft: dict[int, float]) -> int:
    return best_draft_length(acceptance, draft, TARGET, 8, shares_cache=True)


def test_a_draft_that_does_not_pay_is_not_used() -> None:
    assert best([0.9], {1: 10.0, 2: 11.0}) == 0
    assert best([0.0], DRAFT) == 0
    assert best([], DRAFT) == 0


def test_a_better_draft_is_asked_for_more() -> None:
    lengths = [best([rate], DRAFT) for rate in (0.3, 0.7, 0.99)]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]
