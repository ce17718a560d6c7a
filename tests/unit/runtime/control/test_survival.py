from __future__ import annotations

import numpy as np
import pytest

from speccompile.runtime.control.survival import LONGEST, Survival, conditional, trial
from speccompile.runtime.drafting.proposal import Proposal
from tests.unit.runtime.control.world import round_of


def test_the_first_path_is_what_is_tried_first() -> None:
    tree = Proposal([1, 2, 3, 4], [0, 0, 1, 2], [None] * 4)
    assert trial(round_of(tree, [0, 1, 3])) == (2, False, None)
    assert trial(round_of(tree, [0, 1])) == (1, True, None)
    assert trial(round_of(tree, [0])) == (0, True, False)
    assert trial(round_of(tree, [0, 2, 4])) == (0, True, True)
    assert trial(round_of(Proposal(), [0])) == (0, False, None)


def test_at_first_it_is_what_was_measured() -> None:
    found = conditional(Survival([0.9, 0.8, 0.6]).ahead())
    assert found[0] == pytest.approx(0.9, abs=0.01)
    assert found[0] > found[1] > found[2]
    assert conditional(Survival().ahead())[0] == pytest.approx(0.7, abs=0.01)


def teach(survival: Survival, acceptance: list[float], rounds: int, seed: int = 0) -> None:
    """Rounds of proposals as deep as `acceptance`."""
    luck = np.random.default_rng(seed).random((rounds, len(acceptance)))
    for row in luck:
        stood = 0
        while stood < len(acceptance) and row[stood] < acceptance[stood]:
            stood += 1
        survival.learn(stood, stood < len(acceptance))


@pytest.mark.parametrize("acceptance", [[0.9] * 6, [0.5, 0.9, 0.9], [0.9, 0.7, 0.5], [0.3]])
def test_it_finds_every_position(acceptance: list[float]) -> None:
    survival = Survival()
    teach(survival, acceptance, 1500)
    found = conditional(survival.ahead())[: len(acceptance)]
    assert found == pytest.approx(acceptance, abs=0.08)


def test_it_never_rises_and_is_a_probability() -> None:
    survival = Survival()
    teach(survival, [0.6, 0.95, 0.2], 300)
    ahead = survival.ahead()
    assert ahead.shape == (LONGEST,)
    assert (np.diff(ahead) <= 0).all()
    assert ((ahead > 0) & (ahead < 1)).all()


def test_an_untested_position_is_like_the_last_tested() -> None:
    survival = Survival()
    teach(survival, [0.9, 0.5], 1000)
    found = conditional(survival.ahead())
    assert found[4] == pytest.approx(found[1], abs=0.1)
    assert found[4] < 0.65


def test_a_change_is_noticed_within_tens_of_rounds() -> None:
    survival = Survival()
    teach(survival, [0.95] * 4, 100)
    assert survival.ahead()[0] > 0.9
    teach(survival, [0.1] * 4, 10)
    assert survival.ahead()[0] < 0.4
    teach(survival, [0.95], 20)
    assert survival.ahead()[0] > 0.8


def test_a_request_begins_with_what_is_usual() -> None:
    survival = Survival([0.9])
    teach(survival, [0.2] * 3, 200)
    survival.start()
    assert survival.ahead()[0] == pytest.approx(0.2, abs=0.1)
    # One request does not change what is usual.
    teach(survival, [0.95] * 3, 5)
    assert survival.ahead()[0] > 0.5
    survival.start()
    assert survival.ahead()[0] < 0.4


def test_what_stood_speaks_for_what_follows() -> None:
    """Where texts are easy or hard, survival does not fall geometrically."""
    survival = Survival()
    for request in range(60):
        survival.start()
        teach(survival, [0.97 if request % 2 else 0.1] * 6, 8, seed=request)
    survival.start()
    found = conditional(survival.ahead())
    assert found[0] < 0.7 < 0.85 < found[3]


def test_nothing_is_learned_of_nothing() -> None:
    survival = Survival()
    before = survival.ahead()
    survival.learn(0, False)
    assert survival.ahead() == pytest.approx(before, abs=1e-3)
