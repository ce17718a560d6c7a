from __future__ import annotations

import numpy as np
import pytest

from speccompile.runtime.signals import Signals

ROW = np.array([0.0, 2.0, -np.inf, 1.5, -0.5], np.float32)


def test_they_are_those_of_the_row_at_temperature_1() -> None:
    shares = np.exp(ROW.astype(np.float64)) / np.exp(ROW.astype(np.float64)).sum()
    signals = Signals(ROW, 4)
    assert signals.entropy == pytest.approx(-sum(p * np.log(p) for p in shares if p), rel=1e-5)
    found = (signals.first, signals.second, signals.probability)
    assert found == pytest.approx((shares[1], shares[3], shares[4]), rel=1e-5)


def test_one_token_is_sure() -> None:
    signals = Signals(ROW[:1], 0)
    found = (signals.entropy, signals.first, signals.second, signals.probability)
    assert found == pytest.approx((0.0, 1.0, 0.0, 1.0))
