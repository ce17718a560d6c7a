from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from speccompile.runtime.control.controller import FixedController, Outcome
from speccompile.runtime.control.policies import (
    POLICIES,
    CertainAtOpenEnd,
    HalveAndBranch,
    Policy,
    PolicyController,
    RetryWider,
)
from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.proposal import Proposal

CERTAIN = [0.92, 0.03, 0.04, 0.01]
TWO_IN_MIND = [0.5, 0.4, 0.06, 0.04]
ONE_IN_MIND = [0.7, 0.2, 0.06, 0.04]
OPEN = [1 / 16] * 16


def outcome(law: Sequence[float], depth: int, stood: int, token: int = 0) -> Outcome:
    row = np.log(np.array(law, np.float32))
    path = list(range(stood + 1))
    return Outcome(Proposal.chain([0] * depth), path, token, row, depth + 1, 0.0, 1.0, 1.0)


EFFORT = Effort(6, 6)


def test_where_the_first_token_fell_and_the_target_is_certain_it_tries_wider() -> None:
    shaped = RetryWider().shape(EFFORT, outcome(CERTAIN, 6, 0))
    assert shaped is not None
    assert (shaped.depth, shaped.nodes, shaped.beside) == (6, 8, (2, 1))
    # What the target chose is where the next round begins, and not a guess.
    chosen = RetryWider().shape(EFFORT, outcome(CERTAIN, 6, 0, token=2))
    assert chosen is not None
    assert chosen.beside == (0, 1)


@pytest.mark.parametrize(
    "passed", [outcome(CERTAIN, 6, 1), outcome(TWO_IN_MIND, 6, 0), outcome(CERTAIN, 0, 0)]
)
def test_otherwise_it_does_not_try_wider(passed: Outcome) -> None:
    assert RetryWider().shape(EFFORT, passed) is None


def test_where_a_token_in_the_middle_fell_it_halves_and_branches() -> None:
    shaped = HalveAndBranch().shape(EFFORT, outcome(TWO_IN_MIND, 6, 2))
    assert shaped is not None
    assert (shaped.depth, shaped.nodes, shaped.branches) == (3, 4, {2: 2})
    # Never deeper than the controller says, and always at a level that there is.
    shallow = HalveAndBranch().shape(Effort(2, 2), outcome(TWO_IN_MIND, 6, 3))
    assert shallow is not None
    assert (shallow.depth, shallow.branches) == (2, {1: 2})


@pytest.mark.parametrize(
    "passed",
    [outcome(ONE_IN_MIND, 6, 2), outcome(TWO_IN_MIND, 6, 0), outcome(TWO_IN_MIND, 6, 6)],
)
def test_otherwise_it_does_not_halve(passed: Outcome) -> None:
    assert HalveAndBranch().shape(EFFORT, passed) is None


@pytest.mark.parametrize("stood", [5, 6])
def test_at_an_open_end_it_guesses_one_likely_token(stood: int) -> None:
    shaped = CertainAtOpenEnd().shape(EFFORT, outcome(OPEN, 6, stood))
    assert shaped is not None
    assert (shaped.depth, shaped.nodes, shaped.certain) == (1, 1, True)


@pytest.mark.parametrize(
    "passed", [outcome(OPEN, 6, 3), outcome(CERTAIN, 6, 6), outcome(OPEN, 0, 0)]
)
def test_otherwise_it_guesses_on(passed: Outcome) -> None:
    assert CertainAtOpenEnd().shape(EFFORT, passed) is None


def test_at_most_one_has_something_to_say() -> None:
    laws = (CERTAIN, TWO_IN_MIND, ONE_IN_MIND, OPEN)
    for depth in range(8):
        for stood in range(depth + 1):
            for law in laws:
                last = outcome(law, depth, stood)
                assert sum(policy.shape(EFFORT, last) is not None for policy in POLICIES) <= 1


def test_they_shape_the_next_round_only_and_are_counted() -> None:
    controller = PolicyController(FixedController(6))
    controller.start()
    assert controller.effort(9) == Effort(6, 6)
    controller.learn(outcome(CERTAIN, 6, 0))
    shaped = controller.effort(9)
    assert shaped is not None
    assert (shaped.policies, shaped.beside) == (("retry-wider",), (2, 1))
    controller.learn(outcome(CERTAIN, 6, 3))
    assert controller.effort(9) == Effort(6, 6)
    assert controller.counts == {"retry-wider": 1}


def test_a_request_begins_without_the_last_one() -> None:
    controller = PolicyController(FixedController(6))
    controller.learn(outcome(CERTAIN, 6, 0))
    controller.start()
    assert controller.effort(9) == Effort(6, 6)


@pytest.mark.parametrize(
    ("policies", "counts"),
    [((RetryWider(),), {"retry-wider": 1}), ((HalveAndBranch(),), {}), ((), {})],
)
def test_each_can_be_left_out(policies: Sequence[Policy], counts: dict[str, int]) -> None:
    controller = PolicyController(FixedController(6), policies)
    controller.learn(outcome(CERTAIN, 6, 0))
    controller.effort(9)
    assert controller.counts == counts


def test_plain_rounds_stay_plain() -> None:
    controller = PolicyController(FixedController(0))
    controller.learn(outcome(CERTAIN, 6, 0))
    assert controller.effort(9) is None
