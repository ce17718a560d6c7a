import numpy as np
import pytest
from scipy import stats

from speccompile.runtime.proof.chisquare import goodness_of_fit, survival


@pytest.mark.parametrize("degrees", [1, 2, 3, 19, 144, 2000])
def test_survival_is_that_of_scipy(degrees: int) -> None:
    for p in (1 - 1e-9, 0.9, 0.5, 1e-3, 1e-9, 1e-12, 1e-100):
        statistic = float(stats.chi2.isf(p, degrees))
        expected = float(stats.chi2.sf(statistic, degrees))
        assert survival(statistic, degrees) == pytest.approx(expected, rel=1e-9)
    assert survival(0.0, degrees) == 1.0
    assert survival(1e6, degrees) == pytest.approx(float(stats.chi2.sf(1e6, degrees)), abs=1e-300)


def test_goodness_of_fit_is_that_of_scipy() -> None:
    probabilities = np.array([0.5, 0.3, 0.1, 0.1])
    observed = np.array([60, 20, 12, 8])
    fit = goodness_of_fit(observed, probabilities)
    expected = stats.chisquare(observed, probabilities * 100)
    assert fit.degrees == 3
    assert fit.statistic == pytest.approx(expected.statistic)
    assert fit.p == pytest.approx(expected.pvalue)


def test_rare_cells_are_pooled() -> None:
    rare = np.array([0.004] * 10 + [0.48, 0.48])
    observed = np.array([1] * 10 + [45, 45])
    fit = goodness_of_fit(observed, rare)
    # The ten hold 4 of 100, which is too little: one of the others joins them.
    assert fit.degrees == 1
    assert fit.statistic == pytest.approx((55 - 52) ** 2 / 52 + (45 - 48) ** 2 / 48)
    assert goodness_of_fit(np.array([3, 1]), np.array([0.9, 0.1])).p == 1.0


def test_what_cannot_happen_refutes_a_law() -> None:
    assert goodness_of_fit(np.array([999, 1]), np.array([1.0, 0.0])).p == 0.0
