"""The transform is uniform for tokens of their own laws, and not for others."""

import json
import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from speccompile.plugins.laws import Law, draw, law
from speccompile.plugins.laws import Sampling as Filters
from speccompile.plugins.philox import UNIFORM_BITS, uniform_bits
from speccompile.runtime.proof.pit import BINS, Pit

COUNT = 4000
WORDS = 12
CERTAIN = np.array([1.0, 0.0], np.float32)


def stream(
    choose: Callable[[Law, np.random.Generator], int], count: int = COUNT, seed: int = 1
) -> Pit:
    """Tokens that are chosen knowing their law, of which no two are alike."""
    rng, pit = np.random.default_rng(seed), Pit(seed)
    for _ in range(count):
        row = law(rng.normal(0.0, 2.0, WORDS).astype(np.float32), Filters(1.0))
        assert row is not None
        pit.add(row, choose(row, rng))
    return pit


def sound(row: Law, rng: np.random.Generator) -> int:
    token = draw(row, int(rng.integers(1 << 53)))
    assert token is not None
    return token


def sharper(row: Law, rng: np.random.Generator) -> int:
    """A draft of temperature 0.8."""
    changed = row**1.25
    return sound(changed / changed.sum(), rng)


def another(row: Law, rng: np.random.Generator) -> int:
    """A draft that knows nothing."""
    return int(rng.integers(len(row)))


def likeliest(row: Law, rng: np.random.Generator) -> int:
    return int(row.argmax())


def test_a_sound_stream() -> None:
    pit = stream(sound)
    assert pit.refusal is None
    assert pit.count == COUNT == int(pit.histogram.sum())


def test_sound_streams_are_not_refused() -> None:
    assert not any(stream(sound, 300, seed).refusal for seed in range(20))


@pytest.mark.parametrize("wrong", [sharper, another, likeliest])
def test_a_stream_of_another_law(wrong: Callable[[Law, np.random.Generator], int]) -> None:
    refusal = stream(wrong).refusal
    assert refusal is not None
    assert "a deviation of" in refusal


def test_numbers_that_decide_twice() -> None:
    """Each token is right by itself, but every second one knows of the first."""
    kept: list[int] = []

    def again(row: Law, rng: np.random.Generator) -> int:
        number = kept.pop() if kept else int(rng.integers(1 << 53))
        if rng.random() < 0.5:
            kept[:] = [number]
        token = draw(np.sort(row)[::-1], number)
        assert token is not None
        return int(np.argsort(-row)[token])

    refusal = stream(again).refusal
    assert refusal is not None
    assert "correlation" in refusal


def test_one_impossible_token_is_enough() -> None:
    pit = Pit()
    for token in [0] * 50 + [1]:
        pit.add(CERTAIN, token)
    assert pit.refusal == "1 tokens that their law excludes"


def test_the_statistic_is_that_of_scipy_to_a_bin() -> None:
    pit = Pit(seed=5)
    for _ in range(500):
        pit.add(CERTAIN, 0)  # v is then the random number itself
    numbers = uniform_bits(5, np.arange(500), 255) / 2.0**UNIFORM_BITS
    expected = float(stats.kstest(numbers, "uniform").statistic)
    assert expected - 1 / BINS <= pit.statistic <= expected
    assert pit.mean == pytest.approx(float(numbers.mean()))
    deviations = numbers - 0.5
    products = float((deviations[1:] * deviations[:-1]).mean())
    assert pit.correlation == pytest.approx(12 * products)


def test_the_limit_of_a_hundred_thousand() -> None:
    assert Pit(count=100_000).limit == pytest.approx(0.0085, abs=5e-5)
    assert 2 * math.exp(-2 * 500 * Pit(count=500).limit ** 2) == pytest.approx(1e-6)


def test_the_likeliest_come_first() -> None:
    row, pit = np.array([0.25, 0.5, 0.25], np.float32), Pit()
    for token in (1, 0, 2):
        pit.add(row, token)
    bins = np.flatnonzero(pit.histogram) / BINS
    assert [0.0 <= bins[0] < 0.5, 0.5 <= bins[1] < 0.75, 0.75 <= bins[2] < 1.0] == [True] * 3


def test_with_a_draft_its_favourites_come_first() -> None:
    row, draft = np.array([0.5, 0.25, 0.25], np.float32), np.array([0.1, 0.3, 0.6], np.float32)
    pit = Pit()
    for token in (2, 1, 0):
        pit.add(row, token, draft)
    bins = np.flatnonzero(pit.histogram) / BINS
    assert [0.0 <= bins[0] < 0.25, 0.25 <= bins[1] < 0.5, 0.5 <= bins[2] < 1.0] == [True] * 3


def test_it_goes_on_from_its_state() -> None:
    whole, part = Pit(3), Pit(3)
    rng = np.random.default_rng(0)
    row = np.full(8, 0.125, np.float32)
    tokens = [int(token) for token in rng.integers(0, 8, 200)]
    for token in tokens:
        whole.add(row, token)
    for token in tokens[:77]:
        part.add(row, token)
    part = Pit.of(json.loads(json.dumps(part.state())))
    for token in tokens[77:]:
        part.add(row, token)
    assert part.figures() == whole.figures()
    assert len(json.dumps(whole.figures()["histogram"])) < 1000


def test_nothing_is_no_fault() -> None:
    assert Pit().refusal is None
    assert Pit().statistic == 0.0
