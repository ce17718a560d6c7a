import numpy as np
import pytest

from speccompile.plugins.philox import UNIFORM_BITS, philox, uniform_bits

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0, 0, 0, 0), (0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((ONES,) * 4, (ONES,) * 2, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_known_answers_of_its_authors(
    counter: tuple[int, int, int, int], key: tuple[int, int], expected: str
) -> None:
    assert " ".join(f"{int(word):08x}" for word in philox(counter, key)) == expected


def test_a_number_is_27_bits_of_one_word_and_26_of_the_next() -> None:
    seed, position, purpose, request, branch = 0xFEDC_BA98_7654_3210, 2**55 + 7, 201, 3, 4
    counter = (position % 2**32, (position >> 32) + (purpose << 24), request, branch)
    first, second, _, _ = philox(counter, (seed % 2**32, seed >> 32))
    bits = uniform_bits(seed, position, purpose, request=request, branch=branch)
    assert int(bits) == (int(first) >> 5) * 2**26 + (int(second) >> 6)


def test_every_argument_gives_numbers_of_its_own() -> None:
    seeds = np.array([0, 1, 2**32, 2**63], np.uint64)
    positions = np.array([0, 1, 2, 2**24, 2**32, 2**40, 2**56 - 1], np.uint64)
    few = np.arange(4)
    seed, position, purpose, request, branch = np.meshgrid(seeds, positions, few, few, few)
    bits = uniform_bits(seed, position, purpose, request=request, branch=branch)
    assert bits.shape == seed.shape
    assert len(np.unique(bits)) == bits.size


def test_an_array_holds_what_single_calls_give() -> None:
    table = uniform_bits(5, np.arange(3)[:, None], np.arange(2), branch=9)
    for position, purpose in np.ndindex(table.shape):
        assert table[position, purpose] == uniform_bits(5, position, purpose, branch=9)


def test_numbers_fill_their_range_evenly() -> None:
    bits = uniform_bits(11, np.arange(100_000), 2)
    assert bits.min() >= 0
    assert bits.max() < 2**UNIFORM_BITS
    for bit in range(UNIFORM_BITS):  # each within 5 standard deviations of a fair coin's
        assert abs(((bits >> bit) & 1).mean() - 0.5) < 5 * 0.5 / np.sqrt(len(bits))


@pytest.mark.parametrize("other", [(1, 0, 0, 0), (0, 1, 0, 0), (0, 0, 1, 0), (0, 0, 0, 1)])
def test_neighbours_are_uncorrelated(other: tuple[int, int, int, int]) -> None:
    positions = np.arange(50_000)
    ahead, purpose, request, branch = other
    one = uniform_bits(3, positions, 0)
    another = uniform_bits(3, positions + ahead, purpose, request=request, branch=branch)
    assert abs(np.corrcoef(one, another)[0, 1]) < 5 / np.sqrt(len(positions))
