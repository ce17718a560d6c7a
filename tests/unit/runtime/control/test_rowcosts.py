from __future__ import annotations

import numpy as np
import pytest

from speccompile.runtime.control.rowcosts import MOST_ROWS, RowCosts

TABLE = {1: 10.0, 2: 11.0, 4: 12.0, 8: 20.0, 16: 30.0}


def test_at_first_it_is_the_table() -> None:
    costs = RowCosts(TABLE)
    assert costs.seconds[[1, 3, 8]] == pytest.approx([0.010, 0.0115, 0.020])
    assert len(costs.seconds) == MOST_ROWS + 1


def test_what_is_measured_becomes_known() -> None:
    costs = RowCosts(TABLE)
    assert costs.uncertainty(8) > 0.15
    for _ in range(10):
        costs.learn(1, 0.010)
        costs.learn(8, 0.040)
    assert costs.uncertainty(1) < 0.1
    assert costs.seconds[1] == pytest.approx(0.010, rel=0.1)
    assert costs.seconds[8] == pytest.approx(0.040, rel=0.1)
    # A count near a measured one follows it.
    assert costs.seconds[7] > 0.028


def test_one_outlier_is_not_believed() -> None:
    costs = RowCosts(TABLE)
    before = costs.seconds.copy()
    costs.learn(4, 10.0)
    assert costs.seconds == pytest.approx(before)
    costs.learn(4, 0.012)
    costs.learn(4, 10.0)
    assert costs.seconds == pytest.approx(before, rel=0.01)


def test_two_in_a_row_are() -> None:
    costs = RowCosts(TABLE)
    costs.learn(4, 0.024)
    costs.learn(5, 0.028)
    assert costs.seconds[4] > 0.018


def test_more_rows_never_cost_less() -> None:
    costs = RowCosts({1: 10.0, 2: 9.0, 4: 12.0})
    rng = np.random.default_rng(0)
    for rows in rng.integers(1, 17, 200).tolist():
        costs.learn(rows, 0.010 * float(np.exp(0.1 * rng.standard_normal())))
        assert (np.diff(costs.seconds) >= 0).all()


def test_without_a_table_the_first_measurement_is_one() -> None:
    costs = RowCosts({})
    assert costs.seconds[1] == 0.0
    costs.learn(1, 0.010)
    assert costs.seconds[1] == pytest.approx(0.010)
    assert 0.010 < costs.seconds[2] < 0.011
