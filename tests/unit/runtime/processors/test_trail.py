"""A trail tells exactly how one sequence becomes the next, whichever they are."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.runtime.processors.trail import Change, Trail

_SEQUENCES = st.lists(st.lists(st.integers(0, 1), max_size=9), max_size=6)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(_SEQUENCES, st.integers(0, 3))
def test_changes_lead_from_each_sequence_to_the_next(
    sequences: list[list[int]], start: int
) -> None:
    trail, last = Trail(start), list[int]()
    for sequence in sequences:
        kept, removed, added = trail.follow(sequence)
        following = sequence[start:]
        assert last == last[:kept] + removed
        assert following == last[:kept] + added
        assert not (removed and added and removed[0] == added[0]), "more could have been kept"
        last = following


def test_what_is_done_to_a_sequence_afterwards_is_not_seen() -> None:
    trail, sequence = Trail(), [1, 2, 3]
    trail.follow(sequence)
    sequence[0] = 9
    assert trail.follow([1, 2, 3]) == Change(3, [], [])


def test_any_kind_of_sequence_is_followed() -> None:
    trail = Trail(1)
    trail.follow((7, 1, 2))
    assert trail.follow([7, 1, 3]) == Change(1, [2], [3])
