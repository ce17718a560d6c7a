from __future__ import annotations

import numpy as np
import pytest

from speccompile.runtime.control.calibration import auc, ece, fit_temperatures

RNG = np.random.default_rng(0)


def test_calibrated_confidences_have_no_error() -> None:
    confidence = RNG.random(50_000)
    happened = RNG.random(50_000) < confidence
    assert ece(confidence, happened) < 0.02
    # Twice as sure as right: off by a quarter of a uniform variable's span, on average.
    assert ece(confidence, RNG.random(50_000) < confidence / 2) == pytest.approx(0.25, abs=0.02)
    assert ece(np.ones(4), np.ones(4, bool)) == 0.0


def test_auc_counts_pairs() -> None:
    confidence = np.array([0.9, 0.4, 0.4, 0.1, 0.6])
    happened = np.array([True, True, False, False, False])
    # 0.9 beats three; 0.4 beats one, draws with one, loses to one.
    assert auc(confidence, happened) == pytest.approx((3 + 1.5) / 6)
    assert auc(-confidence, happened) == pytest.approx(1 - (3 + 1.5) / 6)
    assert auc(confidence, np.ones(5, bool)) == 0.5


def test_temperatures_are_found_position_by_position() -> None:
    true = np.array([0.5, 2.0, 1.0])
    odds = RNG.normal(1.0, 2.0, (20_000, 3))
    stands = RNG.random(odds.shape) < 1 / (1 + np.exp(-odds / true))
    stood = np.cumprod(stands, axis=1).sum(axis=1)
    assert fit_temperatures(odds, stood) == pytest.approx(tuple(true), rel=0.15)


def test_a_path_that_ended_earlier_says_nothing_of_later_positions() -> None:
    odds = RNG.normal(0.0, 2.0, (20_000, 2))
    stands = RNG.random(odds.shape) < 1 / (1 + np.exp(-odds))
    odds[::2, 1] = np.nan
    stood = np.where(stands[:, 0], 1, 0) + (stands.all(axis=1) & ~np.isnan(odds[:, 1]))
    assert fit_temperatures(odds, stood) == pytest.approx((1.0, 1.0), rel=0.15)
    assert len(fit_temperatures(np.full((3, 2), np.nan), np.zeros(3, np.int64))) == 1
