from __future__ import annotations

import numpy as np
import pytest

from speccompile.runtime.control.plan import Plan


def test_the_best_depth_has_the_most_tokens_a_second() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        ahead = np.cumprod(rng.uniform(0.3, 1.0, 8), dtype=np.float64)
        seconds = np.cumsum(rng.uniform(0.1, 1.0, 9), dtype=np.float64)
        rates = [(1 + ahead[:depth].sum()) / seconds[depth] for depth in range(9)]
        plan = Plan(ahead, seconds)
        assert plan.best(8) == int(np.argmax(rates))
        assert plan.rate == pytest.approx(max(rates))
        # Dinkelbach's condition: the last token is worth its seconds, and the next is not.
        best = plan.best(8)
        if best:
            assert ahead[best - 1] > plan.rate * (seconds[best] - seconds[best - 1]) - 1e-12
        if best < 8:
            assert ahead[best] < plan.rate * (seconds[best + 1] - seconds[best]) + 1e-12


def test_what_cannot_pay_is_not_drafted() -> None:
    assert Plan(np.zeros(3), np.array([1.0, 1.0, 1.0, 1.0])).best(3) == 0
    assert Plan(np.full(3, 0.5), np.array([1.0, 2.0, 3.0, 4.0])).best(3) == 0


def test_a_path_as_good_as_usual_goes_on_to_the_best_depth() -> None:
    ahead = np.cumprod(np.full(8, 0.8), dtype=np.float64)
    plan = Plan(ahead, 1.0 + 0.1 * np.arange(9.0))
    best = plan.best(8)
    assert 1 < best < 8
    for depth in range(1, 9):
        assert (ahead[depth - 1] > plan.threshold(depth, 8)) == (depth < best)


def test_a_step_of_the_costs_is_looked_over() -> None:
    """The second token alone is not worth it; with the third and fourth, free, it is."""
    ahead = np.array([0.9, 0.8, 0.75, 0.7])
    plan = Plan(ahead, np.array([1.0, 1.05, 1.6, 1.6, 1.6]))
    assert ahead[1] < plan.rate * 0.55
    assert plan.best(4) == 4
    assert ahead[0] > plan.threshold(1, 4)
    assert ahead[0] < plan.threshold(1, 2)


def test_nothing_is_beyond_the_deepest() -> None:
    plan = Plan(np.full(3, 1.0), np.array([1.0, 1.1, 1.2, 1.3]))
    assert plan.threshold(3, 3) == float("inf")
    assert plan.best(2) == 2
