from __future__ import annotations

import numpy as np
import pytest

from speccompile.runtime.control.logistic import Shifts, logit, sigmoid


def test_log_odds_and_probabilities_are_inverse() -> None:
    for probability in (0.01, 0.5, 0.9):
        assert sigmoid(logit(probability)) == pytest.approx(probability)
    assert logit(0.0) > -10.0
    assert sigmoid(-1000.0) == 0.0


def test_a_shift_corrects_what_was_predicted() -> None:
    shifts, rng = Shifts(2, worth=1.0), np.random.default_rng(0)
    for _ in range(2000):
        predicted = sigmoid(logit(0.5) + shifts.values[1])
        shifts.learn(1, predicted, bool(rng.random() < 0.9))
    assert sigmoid(shifts.values[1]) == pytest.approx(0.9, abs=0.04)
    assert shifts.values[0] == 0.0
