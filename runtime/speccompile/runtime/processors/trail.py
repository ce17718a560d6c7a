"""The sequence of the last call, so that a processor need only look at what has changed since."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Change", "Trail"]


class Change(NamedTuple):
    """How to get from one sequence to the next: `kept` tokens, less `removed`, and then `added`."""

    kept: int
    removed: list[int]
    added: list[int]


class Trail:
    """Follows sequences from position `start` on.

    The rows of a round share all but their last tokens: those before them are compared, in slices,
    and nothing else is done for each of them.
    """

    def __init__(self, start: int = 0) -> None:
        self._start = start
        self._tokens: list[int] = []

    def follow(self, tokens: Sequence[int]) -> Change:
        """The change from the sequence of the last call, at first the empty one, to `tokens`."""
        sequence = tokens if isinstance(tokens, list) else list(tokens)
        kept = self._common(sequence)
        change = Change(kept, self._tokens[kept:], sequence[self._start + kept :])
        self._tokens[kept:] = change.added
        return change

    def _common(self, sequence: list[int]) -> int:
        """How many tokens it begins with as the last one did; by halving what may be as many."""
        low, high = 0, max(0, min(len(self._tokens), len(sequence) - self._start))
        while low < high:
            middle = (low + high + 1) // 2
            known = self._tokens[low:middle]
            if known == sequence[self._start + low : self._start + middle]:
                low = middle
            else:
                high = middle - 1
        return low
