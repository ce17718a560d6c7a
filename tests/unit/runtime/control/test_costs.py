from __future__ import annotations

import pytest

from speccompile.runtime.control.costs import RoundCosts
from speccompile.runtime.drafting.proposal import Proposal
from tests.unit.runtime.control.world import round_of

TARGET = {1: 10.0, 2: 11.0, 4: 12.0, 8: 20.0}
DRAFT = {1: 1.0, 2: 1.5}


def costs(*, shares_cache: bool = True) -> RoundCosts:
    return RoundCosts(TARGET, DRAFT, shares_cache=shares_cache)


def learn(costs: RoundCosts, depth: int, *, draft: float, step: float, rounds: int) -> None:
    proposal = Proposal.chain([0] * depth)
    for _ in range(rounds):
        costs.learn(round_of(proposal, [0], draft=draft, seconds=draft + step))


def test_a_round_costs_at_first_what_the_table_says() -> None:
    assert costs().step(1) == pytest.approx(0.010)
    assert costs().step(6) == pytest.approx(0.016)
    assert costs().drafting(3) == pytest.approx(0.003)
    assert costs().rounds(3).tolist() == pytest.approx([0.010, 0.012, 0.0135, 0.015])
    assert costs().rounds(0).tolist() == pytest.approx([0.010])


def test_rows_that_are_fed_again_come_on_top() -> None:
    assert costs().rounds(2, again=1).tolist() == pytest.approx([0.011, 0.0125, 0.014])


def test_a_draft_with_a_cache_of_its_own_first_follows() -> None:
    assert costs(shares_cache=False).drafting(3) == pytest.approx(0.0035)
    assert costs(shares_cache=False).drafting(0) == 0.0


def test_a_slower_machine_is_noticed_in_a_few_rounds() -> None:
    slower = costs()
    for depth, step in ((0, 0.010), (3, 0.012), (7, 0.020)):
        learn(slower, depth, draft=depth * 0.001, step=step, rounds=10)
    learn(slower, 3, draft=0.006, step=0.036, rounds=40)
    assert slower.drafting(3) == pytest.approx(0.006)
    assert slower.step(4) == pytest.approx(0.036, rel=0.05)
    # Also for what was not run since.
    assert slower.step(1) == pytest.approx(0.030, rel=0.15)
    assert slower.step(8) == pytest.approx(0.060, rel=0.15)


def test_a_draft_that_was_not_run_yet_is_as_much_faster_as_the_target() -> None:
    faster = costs()
    learn(faster, 0, draft=0.0, step=0.002, rounds=30)
    assert faster.drafting(3) == pytest.approx(0.003 * 0.2, rel=0.05)
    # What it really takes counts once there is enough of it.
    learn(faster, 3, draft=0.003, step=0.0024, rounds=5)
    assert faster.drafting(3) == pytest.approx(0.003)


def test_one_row_count_alone_does_not_tell_what_others_cost() -> None:
    costs_of_four = costs()
    learn(costs_of_four, 3, draft=0.003, step=0.036, rounds=20)
    assert costs_of_four.step(4) == pytest.approx(0.036, rel=0.05)
    assert 0.015 < costs_of_four.step(1) < 0.030
    assert costs_of_four.doubt > 0.15
    for _ in range(10):
        learn(costs_of_four, 0, draft=0.0, step=0.010, rounds=2)
        learn(costs_of_four, 3, draft=0.003, step=0.036, rounds=2)
    assert costs_of_four.doubt < 0.15
    assert costs_of_four.step(1) == pytest.approx(0.010, rel=0.15)
    assert costs_of_four.step(4) == pytest.approx(0.036, rel=0.1)


def test_one_round_moves_little() -> None:
    disturbed = costs()
    learn(disturbed, 3, draft=0.003, step=0.012, rounds=10)
    learn(disturbed, 3, draft=3.0, step=12.0, rounds=1)
    assert disturbed.drafting(3) == pytest.approx(0.003)
    assert disturbed.step(4) == pytest.approx(0.012, rel=0.1)
    assert disturbed.step(1) == pytest.approx(0.010, rel=0.1)


def test_a_row_count_that_costs_more_than_measured_is_noticed() -> None:
    jump = costs()
    for _ in range(30):
        learn(jump, 0, draft=0.0, step=0.010, rounds=2)
        learn(jump, 3, draft=0.003, step=0.024, rounds=1)
    assert jump.step(1) == pytest.approx(0.010, rel=0.05)
    assert jump.step(4) == pytest.approx(0.024, rel=0.1)
    assert 0.010 < jump.step(2) < 0.018


def test_more_rows_never_cost_less() -> None:
    noise = RoundCosts({1: 10.0, 2: 9.0, 4: 12.0}, {})
    assert noise.step(2) == noise.step(1) == pytest.approx(0.010)


def test_what_was_not_measured_is_learned() -> None:
    unknown = RoundCosts({}, {})
    assert unknown.step(1) == 0.0
    learn(unknown, 0, draft=0.0, step=0.010, rounds=1)
    assert unknown.step(1) == pytest.approx(0.010)
    assert unknown.step(2) > unknown.step(1)
    assert unknown.drafting(2) == 0.0
    learn(unknown, 2, draft=0.004, step=0.012, rounds=5)
    assert unknown.drafting(2) == pytest.approx(0.004)
    assert unknown.step(3) == pytest.approx(0.012, rel=0.05)


def test_verification_counts_with_the_rows() -> None:
    """And drafting does not."""
    overhead = costs()
    for _ in range(20):
        overhead.learn(round_of(Proposal(), [0], seconds=0.015))
    assert overhead.step(1) == pytest.approx(0.015, rel=0.02)
