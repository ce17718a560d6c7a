import pytest

from speccompile.runtime.bench.regression import Change, Figure, change


def figure(*values: float, percent: bool = False, uncertainty: float = 0.0) -> Figure:
    texts = (f"prompt {number}" for number in range(len(values)))
    by_prompt = dict(zip(texts, values, strict=False))
    return Figure("figure", by_prompt, percent, uncertainty)


def found(before: Figure, now: Figure, least: float = 0.02) -> Change:
    changed = change(before, now, least)
    assert changed is not None
    return changed


def test_a_ratio_that_fell_by_more_than_the_least_is_a_regression() -> None:
    changed = found(figure(1.0, 2.0, 3.0), figure(0.9, 1.8, 2.7))
    assert (changed.before, changed.now) == (2.0, 1.8)
    assert changed.better == pytest.approx(-0.1)
    assert changed.tolerance == pytest.approx(0.02)
    assert changed.regressed
    assert not found(figure(1.0, 2.0), figure(0.99, 1.98)).regressed
    assert not found(figure(1.0, 2.0), figure(1.5, 3.0)).regressed
    assert not found(figure(1.0, 2.0), figure(0.9, 1.8), least=0.2).regressed


def test_prompts_are_compared_with_themselves() -> None:
    """However far apart they are, if all fell alike there is no doubt."""
    assert found(figure(1.0, 5.0, 9.0), figure(0.95, 4.75, 8.55)).regressed


def test_what_changes_both_ways_needs_more_to_be_believed() -> None:
    before = figure(*[1.0] * 4)
    noisy = found(before, figure(0.7, 0.9, 0.94, 1.2))
    assert noisy.better == pytest.approx(-0.08)
    assert noisy.tolerance == pytest.approx((0.122 + 0.24) / 2, abs=1e-3)  # the p90 less the p10
    assert not noisy.regressed
    certain = found(figure(*[1.0] * 64), figure(*[0.7, 0.9, 0.94, 1.2] * 16))
    assert certain.tolerance < 0.07
    assert certain.regressed


def test_of_a_percentage_of_time_less_is_better_and_points_count() -> None:
    changed = found(figure(2.0, 4.0, percent=True), figure(7.0, 9.0, percent=True))
    assert changed.better == pytest.approx(-0.05)
    assert changed.regressed
    assert not found(figure(7.0, percent=True), figure(2.0, percent=True)).regressed
    assert not found(figure(0.0, percent=True), figure(1.0, percent=True)).regressed


def test_what_all_prompts_share_is_added() -> None:
    before, now = figure(0.8, uncertainty=0.03), figure(0.72, uncertainty=0.06)
    assert found(before, now).tolerance == pytest.approx(0.11)
    assert not found(before, now).regressed


def test_only_prompts_of_both_count() -> None:
    before = Figure("figure", {"a": 1.0, "b": 1.0})
    now = Figure("figure", {"b": 2.0, "c": 9.0})
    changed = found(before, now)
    assert (changed.before, changed.now, changed.better) == (1.0, 2.0, 1.0)
    assert change(before, Figure("figure", {"c": 1.0}), 0.02) is None
