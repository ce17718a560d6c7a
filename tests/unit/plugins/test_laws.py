import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from speccompile.plugins.laws import (
    GREEDY,
    MASS_ONE,
    Law,
    Sampling,
    accepts,
    argmax,
    draw,
    exponential,
    law,
    mass,
)

INFINITY = float("inf")
LAST = 2**53 - 1

# Few different logits, so that ties are the rule.
ROWS = st.lists(st.sampled_from([-INFINITY, -9.0, -1.5, 0.0, 0.25, 2.0]), min_size=1, max_size=12)
SOUND_ROWS = ROWS.filter(lambda row: max(row) > -INFINITY)
SAMPLINGS = st.builds(
    Sampling,
    temperature=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    top_k=st.integers(0, 13),
    top_p=st.sampled_from([0.0, 0.2, 0.5, 0.9, 1.0]),
    min_p=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
)


def certain_law(logits: list[float] | NDArray[np.float32], sampling: Sampling) -> Law:
    found = law(np.asarray(logits, np.float32), sampling)
    assert found is not None
    return found


def test_exponential_errs_by_less_than_3e_7() -> None:
    values = np.linspace(-40, 0, 1_000_003).astype(np.float32)
    exact = np.exp(values.astype(np.float64))
    assert np.abs(exponential(values) / exact - 1).max() < 3e-7  # measured: 2.5e-7


def test_exponential_at_its_ends() -> None:
    below = float(np.nextafter(np.float32(-40), np.float32(-41)))
    values = np.array([0.0, -0.0, -40.0, below, -1e30, -INFINITY], np.float32)
    one, also_one, smallest, *nothing = exponential(values)
    assert one == also_one == 1.0
    assert 0.0 < smallest < 2.0**-52
    assert nothing == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("temperature", [0.2, 0.7, 1.0, 3.0])
@pytest.mark.parametrize("vocabulary", [5, 1000, 50_000])
def test_law_is_the_softmax(temperature: float, vocabulary: int) -> None:
    logits = (4 * np.random.default_rng(vocabulary).normal(size=vocabulary)).astype(np.float32)
    scaled = (logits.astype(np.float64) - logits.max()) / temperature
    exact = np.exp(scaled) / np.exp(scaled).sum()
    found = certain_law(logits, Sampling(temperature)).astype(np.float64)
    assert np.abs(found - exact).max() < 1e-6
    assert found.sum() == pytest.approx(1.0, abs=1e-6)
    likely = exact > 1e-9  # the quotient of a logit and the temperature is rounded, too
    assert np.abs(found / exact - 1)[likely].max() < 1e-5


@given(SOUND_ROWS, SAMPLINGS)
def test_filters_keep_what_sets_say(row: list[float], sampling: Sampling) -> None:
    """top-k, then top-p, then min-p, by sorting; equals stay or go together."""
    if sampling.temperature == 0.0:
        return
    weights = {
        token: float(np.exp((logit - max(row)) / sampling.temperature))
        for token, logit in enumerate(row)
        if logit > -INFINITY
    }
    if sampling.top_k:
        least = sorted(weights.values(), reverse=True)[: sampling.top_k][-1]
        weights = {token: weight for token, weight in weights.items() if weight >= least}
    if sampling.top_p < 1:
        enough = sampling.top_p * sum(weights.values())
        above = {
            token: sum(other for other in weights.values() if other > weight)
            for token, weight in weights.items()
        }
        best = max(weights.values())
        weights = {
            token: weight
            for token, weight in weights.items()
            if above[token] < enough or weight == best
        }
    weights = {token: weight for token, weight in weights.items() if weight >= sampling.min_p}
    expected = np.array([weights.get(token, 0.0) for token in range(len(row))])
    found = certain_law(row, sampling)
    assert (found > 0).tolist() == (expected > 0).tolist()
    assert found == pytest.approx(expected / expected.sum(), abs=1e-6)


@given(SOUND_ROWS, SAMPLINGS, st.integers(0, 99))
def test_order_changes_no_bit(row: list[float], sampling: Sampling, seed: int) -> None:
    logits = np.array(row, np.float32)
    order = np.random.default_rng(seed).permutation(len(row))
    if sampling.temperature:
        found = certain_law(logits[order], sampling)
        assert found.tobytes() == certain_law(logits, sampling)[order].tobytes()


def test_order_changes_no_bit_of_a_real_vocabulary() -> None:
    rng = np.random.default_rng(4)
    logits = (5 * rng.normal(size=151_936)).astype(np.float32)
    order = rng.permutation(len(logits))
    sampling = Sampling(0.9, top_p=0.95)
    found = certain_law(logits[order], sampling)
    assert found.tobytes() == certain_law(logits, sampling)[order].tobytes()
    naive = np.exp(logits - logits.max())  # the same in fp32 does depend on it
    assert np.cumsum(naive)[-1] != np.cumsum(naive[order])[-1]


def test_half_precision_logits_count_for_what_they_are() -> None:
    logits = np.random.default_rng(5).normal(size=64).astype(np.float16)
    found = law(logits, Sampling(0.6, 20, 0.9, 0.01))
    assert found is not None
    assert (
        found.tobytes()
        == certain_law(logits.astype(np.float32), Sampling(0.6, 20, 0.9, 0.01)).tobytes()
    )


def test_temperature_0_is_the_lowest_of_the_largest() -> None:
    assert certain_law([1.0, 3.0, 3.0, -INFINITY], GREEDY).tolist() == [0, 1, 0, 0]


@pytest.mark.parametrize("temperature", [1e-6, 1e-40])
def test_a_tiny_temperature_leaves_the_largest(temperature: float) -> None:
    found = certain_law([1.0, 3.0, 3.0, -INFINITY], Sampling(temperature))
    assert found.tolist() == [0, 0.5, 0.5, 0]


def test_what_weighs_less_than_a_unit_of_the_largest_is_left_out() -> None:
    unit = float(np.log(2.0**-44))
    found = certain_law([0.0, unit + 0.01, unit - 0.01], Sampling(1.0))
    assert (found > 0).tolist() == [True, True, False]


@pytest.mark.parametrize(
    "row",
    [
        [0.0, float("nan"), 1.0],
        [float("nan")] * 3,
        [0.0, INFINITY, 1.0],
        [-INFINITY] * 3,
        [INFINITY, float("nan"), 0.0],
    ],
)
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_invalid_rows_have_no_law(row: list[float], temperature: float) -> None:
    logits = np.array(row, np.float32)
    assert argmax(logits) is None
    assert law(logits, Sampling(temperature, top_k=2)) is None


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=9), st.integers(0, LAST))
def test_draw_follows_the_cumulated_mass(counts: list[int], uniform: int) -> None:
    probabilities = np.array(counts, np.float32) / np.float32(max(sum(counts), 1))
    token = draw(probabilities, uniform)
    whole = [int(each) for each in mass(probabilities)]
    if not sum(whole):
        assert token is None
        return
    assert token is not None
    place = min(int(sum(whole) * (uniform / 2**53)), sum(whole) - 1)
    assert sum(whole[:token]) <= place < sum(whole[: token + 1])


def test_draw_at_the_edges() -> None:
    quarters = np.array([0, 0.25, 0.5, 0, 0.25, 0], np.float32)
    quarter = 2**51
    edges = [0, quarter - 1, quarter, 3 * quarter - 1, 3 * quarter, LAST]
    assert [draw(quarters, uniform) for uniform in edges] == [1, 1, 2, 2, 4, 4]
    # Mass that is no power of two: the product of the last number rounds up to the total.
    for scale in np.linspace(0.3, 1.0, 1000, dtype=np.float32):
        assert draw(quarters * scale, LAST) == 4
        assert draw(quarters * scale, 0) == 1


def test_what_is_below_a_unit_of_mass_is_never_drawn() -> None:
    assert draw(np.array([2.0**-53, 1.0], np.float32), 0) == 1
    assert draw(np.array([2.0**-53, 0.0], np.float32), 0) is None
    assert int(mass(np.array([1.0], np.float32))[0]) == MASS_ONE


@given(
    st.integers(0, LAST),
    st.floats(0, 1, width=32, allow_subnormal=False),
    st.floats(0, 1, width=32, allow_subnormal=False),
)
def test_accepts_with_the_ratio(uniform: int, p: float, q: float) -> None:
    accepted = accepts(uniform, p, q)
    if p >= q and p > 0:
        assert accepted
    elif p == 0:
        assert not accepted
    elif abs(uniform / 2**53 - p / q) > 1e-12:
        assert accepted == (uniform / 2**53 < p / q)
