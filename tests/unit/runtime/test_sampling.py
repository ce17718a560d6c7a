import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from speccompile.runtime.errors import RequestError
from speccompile.runtime.sampling import Purpose, Randomness, Sampling, law

rows = st.lists(
    st.one_of(st.floats(-50.0, 50.0, width=32), st.sampled_from([0.0, 1.0, 2.0])),
    min_size=1,
    max_size=8,
)


def expected_law(logits: list[float], sampling: Sampling) -> list[float]:
    """The definition, token by token: what stays is no less likely than the last one kept."""
    top = max(logits)
    weights = [math.exp((value - top) / sampling.temperature) for value in logits]
    if sampling.top_k:
        least = sorted(weights, reverse=True)[: sampling.top_k][-1]
        weights = [weight if weight >= least else 0.0 for weight in weights]
    total, mass, least = sum(weights), 0.0, top
    for weight in sorted(weights, reverse=True):
        mass += weight / total
        least = weight
        if mass >= sampling.top_p:
            break
    weights = [weight if weight >= least else 0.0 for weight in weights]
    return [weight / sum(weights) for weight in weights]


@settings(derandomize=True, max_examples=200, deadline=None)
@given(rows, st.floats(0.1, 5.0), st.integers(0, 9), st.sampled_from([0.15, 0.55, 0.95, 1.0]))
def test_law_follows_its_definition(
    logits: list[float], temperature: float, top_k: int, top_p: float
) -> None:
    sampling = Sampling(temperature, top_k, top_p)
    got = law(np.array(logits, np.float32), sampling)
    assert got.dtype == np.float64
    assert got.sum() == pytest.approx(1.0, abs=1e-12)
    assert got[int(np.argmax(logits))] == got.max() > 0.0
    # A cut that falls within rounding of top_p may keep one group of equals more or less.
    shifted = [Sampling(temperature, top_k, min(1.0, top_p + slack)) for slack in (-1e-9, 0, 1e-9)]
    references = [expected_law(logits, each) for each in shifted]
    assert any(np.allclose(got, each, rtol=1e-9, atol=1e-12) for each in references)


def test_law_leaves_the_logits_alone() -> None:
    # They are the engine's memory.
    logits = np.array([0.0, 1.0, 2.0], np.float32)
    law(logits, Sampling(0.5, top_k=2, top_p=0.5))
    assert logits.tolist() == [0.0, 1.0, 2.0]


def test_top_p_keeps_the_token_that_crosses_it() -> None:
    logits = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))
    assert np.flatnonzero(law(logits, Sampling(1.0, top_p=0.6))).tolist() == [1, 3]
    assert np.flatnonzero(law(logits, Sampling(1.0, top_p=0.75))).tolist() == [1, 2, 3]
    assert np.flatnonzero(law(logits, Sampling(1.0, top_p=0.01))).tolist() == [1]


def test_top_p_counts_what_top_k_has_left() -> None:
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    kept = law(logits, Sampling(1.0, top_k=2, top_p=0.55))
    # 0.4 of 0.7 is 0.57: one token reaches the bound, which without top-k takes two.
    assert kept.tolist() == [1.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("sampling", [Sampling(1.0, top_k=1), Sampling(1.0, top_p=0.3)])
def test_tokens_tied_with_the_last_kept_one_stay(sampling: Sampling) -> None:
    kept = law(np.array([1.0, 3.0, 3.0, 0.0], np.float32), sampling)
    assert kept.tolist() == [0.0, 0.5, 0.5, 0.0]


@pytest.mark.parametrize("temperature", [5e-324, 1e-310, 1e-30, 1e-3])
def test_a_tiny_temperature_is_greedy_and_not_nan(temperature: float) -> None:
    kept = law(np.array([-30.0, 40.0, 39.0], np.float32), Sampling(temperature, top_k=2))
    assert kept.tolist() == [0.0, 1.0, 0.0]


def test_law_takes_masked_logits() -> None:
    logits = np.array([-np.inf, 0.0, -np.inf, 0.0], np.float32)
    assert law(logits, Sampling(1.0, top_k=3, top_p=0.9)).tolist() == [0.0, 0.5, 0.0, 0.5]


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: Sampling(-0.1), "temperature is -0.1"),
        (lambda: Sampling(math.nan), "temperature is nan"),
        (lambda: Sampling(math.inf), "temperature is inf"),
        (lambda: Sampling(top_k=-1), "top_k is -1"),
        (lambda: Sampling(top_p=0.0), "top_p is 0.0"),
        (lambda: Sampling(top_p=1.01), "top_p is 1.01"),
        (lambda: Sampling(top_p=math.nan), "top_p is nan"),
        (lambda: Sampling(seed=-1), "seed is -1"),
        (lambda: Sampling(seed=1 << 64), "seed is 18446744073709551616"),
    ],
)
def test_values_out_of_range_are_refused(make: Callable[[], Sampling], named: str) -> None:
    with pytest.raises(RequestError, match=named):
        make()


def test_randomness_is_a_function_of_seed_position_and_purpose() -> None:
    assert Randomness(5).uniform(7, Purpose.ACCEPT) == 0.0854260719244736
    assert Randomness((1 << 64) - 1).uniform(0, Purpose.EMIT) < 1.0
    keys = [
        (seed, position, purpose)
        for seed in range(4)
        for position in range(20)
        for purpose in Purpose
    ]
    numbers = [Randomness(seed).uniform(position, purpose) for seed, position, purpose in keys]
    again = [Randomness(seed).uniform(position, purpose) for seed, position, purpose in keys]
    assert numbers == again
    assert len(set(numbers)) == len(keys)


def test_numbers_are_uniform_and_independent_across_purposes_positions_and_seeds() -> None:
    count = 1500
    draft, accept, emit = (_numbers(0, purpose, count) for purpose in Purpose)
    other = _numbers(1, Purpose.DRAFT, count)
    for numbers in (draft, accept, emit, other):
        assert stats.kstest(numbers, "uniform").pvalue > 1e-6
    pairs = [(draft, accept), (draft, emit), (accept, emit), (draft, other)]
    for left, right in [*pairs, (emit[1:], emit[:-1])]:
        assert abs(np.corrcoef(left, right)[0, 1]) < 6 / count**0.5


def _numbers(seed: int, purpose: Purpose, count: int) -> NDArray[np.float64]:
    randomness = Randomness(seed)
    return np.array([randomness.uniform(position, purpose) for position in range(count)])
