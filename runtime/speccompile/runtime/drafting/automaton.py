"""All substrings of a growing text, in memory and time that grow as the text does."""

from __future__ import annotations

from array import array
from typing import NamedTuple

__all__ = ["Follower", "SuffixAutomaton"]

_COUNTED = 16  # endings, the longest: all that text has but for runs of one token
_NONE = -1


class Follower(NamedTuple):
    """What came after a substring, how often, and the state of the substring with it."""

    token: int
    times: int
    state: int


class SuffixAutomaton:
    """A suffix automaton, built online (Blumer et al., 1985).

    A state stands for the substrings that end at the same places; state 0 is the empty one. A text
    of n tokens has at most 2 n states and 3 n transitions, and reading it takes O(n) steps. Each
    state counts its occurrences: a token adds to the longest 16 of the endings that it makes. A
    negative token is a boundary: it is read, but never a follower.
    """

    def __init__(self) -> None:
        self._next: list[dict[int, int]] = [{}]
        self._link = array("q", [_NONE])
        self._length = array("q", [0])
        self._count = array("q", [0])
        self._latest = array("q", [0])
        self._last = 0
        self._size = 0

    @property
    def repeated(self) -> int:
        """The state of the longest ending of the text that occurs earlier in it."""
        return max(self._link[self._last], 0)

    def length(self, state: int) -> int:
        """Of the longest substring of a state, in tokens."""
        return self._length[state]

    def followers(self, state: int) -> list[Follower]:
        """The most frequent first, of equals the latest.

        A substring that nothing followed goes on as its longest ending does that something did: a
        text that repeats itself up to its end is taken to do so beyond. Of the empty substring
        nothing is said.
        """
        while state and all(token < 0 for token in self._next[state]):
            state = self._link[state]
        if not state:
            return []
        found = [
            Follower(token, self._count[after], after)
            for token, after in self._next[state].items()
            if token >= 0
        ]
        found.sort(key=lambda each: (each.times, self._latest[each.state]), reverse=True)
        return found

    def read(self, token: int) -> None:
        """Append a token to the text."""
        self._size += 1
        new = self._state(self._size, {}, _NONE)
        state = self._last
        while state != _NONE and token not in self._next[state]:
            self._next[state][token] = new
            state = self._link[state]
        self._link[new] = 0 if state == _NONE else self._split(state, token)
        self._last = new
        self._occurs(new)

    def _split(self, state: int, token: int) -> int:
        """The state of the longest substring of `state` with the token, and of no longer ones."""
        after = self._next[state][token]
        length = self._length[state] + 1
        if self._length[after] == length:
            return after
        clone = self._state(length, dict(self._next[after]), self._link[after])
        self._count[clone], self._latest[clone] = self._count[after], self._latest[after]
        self._link[after] = clone
        while state != _NONE and self._next[state].get(token) == after:
            self._next[state][token] = clone
            state = self._link[state]
        return clone

    def _state(self, length: int, following: dict[int, int], link: int) -> int:
        self._next.append(following)
        self._link.append(link)
        self._length.append(length)
        self._count.append(0)
        self._latest.append(0)
        return len(self._next) - 1

    def _occurs(self, state: int) -> None:
        """Count the text's endings, from that of a state on."""
        for _ in range(_COUNTED):
            if state == 0:
                break
            self._count[state] += 1
            self._latest[state] = self._size
            state = self._link[state]
