import pytest

from speccompile.runtime.proof.rows import check_rollback, check_rows
from tests.unit.runtime.proof.sessions import PROMPTS, TARGET, Keeping, Noisy
from tests.unit.runtime.tables import TableEngine

LENGTHS = (1, 2, 3, 4, 5)


def test_rows_of_an_exact_engine() -> None:
    check = check_rows(TableEngine(TARGET), PROMPTS, 9)
    assert check.passed
    assert check.details["bit_equal"] is True
    assert check.details["compared_rows"] == len(PROMPTS) * sum(range(2, 10))
    assert "bit-equal" in check.summary


def test_rows_that_differ_but_choose_alike_pass_and_are_reported() -> None:
    check = check_rows(Noisy(1e-4), PROMPTS, 9)
    assert check.passed
    assert check.details["bit_equal"] is False
    assert "bit-equal" not in check.summary


@pytest.mark.parametrize("noise", [3.0, float("nan")])
def test_rows_that_choose_otherwise_fail(noise: float) -> None:
    assert not check_rows(Noisy(noise), PROMPTS, 9).passed


def test_roll_back_of_an_exact_engine() -> None:
    check = check_rollback(TableEngine(TARGET), PROMPTS, LENGTHS, exact=True)
    assert check.passed
    assert check.details["rejected_proposals"] == len(PROMPTS) * len(LENGTHS)


def test_roll_back_of_an_inexact_engine_has_a_tolerance() -> None:
    assert check_rollback(Noisy(1e-4), PROMPTS, LENGTHS, exact=False).passed
    assert not check_rollback(Noisy(1e-4), PROMPTS, LENGTHS, exact=True).passed
    assert not check_rollback(Noisy(3.0), PROMPTS, LENGTHS, exact=False).passed
    assert not check_rollback(Noisy(float("nan")), PROMPTS, LENGTHS, exact=False).passed


@pytest.mark.parametrize("exact", [True, False])
def test_a_wrong_roll_back_is_caught(exact: bool) -> None:
    assert not check_rollback(Keeping(TARGET), PROMPTS, LENGTHS, exact=exact).passed
