import math
from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from speccompile.runtime.errors import RequestError
from speccompile.runtime.sampling import Randomness, Sampling


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
        (lambda: Sampling(min_p=-0.1), "min_p is -0.1"),
        (lambda: Sampling(min_p=1.1), "min_p is 1.1"),
        (lambda: Sampling(seed=-1), "seed is -1"),
        (lambda: Sampling(seed=1 << 64), "seed is 18446744073709551616"),
    ],
)
def test_values_out_of_range_are_refused(make: Callable[[], Sampling], named: str) -> None:
    with pytest.raises(RequestError, match=named):
        make()


def test_randomness_is_a_function_of_what_it_is_for() -> None:
    # The numbers that a GPU draws for itself: they must not change.
    assert Randomness(5).accept(root=7, node=0) * 2.0**-53 == 0.0854260719244736
    assert Randomness((1 << 64) - 1).emit(0) < 1 << 53
    numbers = [
        number
        for seed in range(4)
        for request in range(2)
        for each in [Randomness(seed, request)]
        for place in range(20)
        for number in (each.emit(place), each.accept(place, 1), each.draft(place, 1))
    ]
    numbers += [Randomness(0).accept(place, node) for place in range(20) for node in range(2, 9)]
    assert len(set(numbers)) == len(numbers)


def test_numbers_are_uniform_and_independent_across_purposes_places_and_seeds() -> None:
    count, one, two = 1500, Randomness(0), Randomness(1)
    draft = _uniform([one.draft(place, 1) for place in range(count)])
    accept = _uniform([one.accept(place, 1) for place in range(count)])
    emit = _uniform([one.emit(place) for place in range(count)])
    sibling = _uniform([one.draft(place, 1025) for place in range(count)])
    other = _uniform([two.draft(place, 1) for place in range(count)])
    for numbers in (draft, accept, emit, sibling, other):
        assert stats.kstest(numbers, "uniform").pvalue > 1e-6
    pairs = [(draft, accept), (draft, emit), (accept, emit), (draft, sibling), (draft, other)]
    for left, right in [*pairs, (emit[1:], emit[:-1])]:
        assert abs(np.corrcoef(left, right)[0, 1]) < 6 / count**0.5


def test_noise_is_exponential_and_belongs_to_a_place() -> None:
    noise = Randomness(3).noise(9, 4000)
    assert stats.kstest(noise, "expon").pvalue > 1e-6
    np.testing.assert_array_equal(noise, Randomness(3).noise(9, 4000))
    others = [
        Randomness(3).noise(10, 4000),
        Randomness(4).noise(9, 4000),
        Randomness(3, 1).noise(9, 4000),
    ]
    for other in others:
        assert abs(np.corrcoef(noise, other)[0, 1]) < 6 / len(noise) ** 0.5


def test_noise_of_the_largest_seeds_is_told_apart() -> None:
    """As float64 they would be one and the same."""
    largest = (1 << 64) - 1
    noise = [Randomness(seed).noise(9, 8) for seed in (largest, largest - 1, 1 << 63)]
    assert not np.array_equal(noise[0], noise[1])
    assert not np.array_equal(noise[1], noise[2])


def _uniform(numbers: list[int]) -> NDArray[np.float64]:
    return np.array(numbers) * 2.0**-53
