"""When to try again, after it was found that speculating does not pay."""

from __future__ import annotations

__all__ = ["Probing"]

_SHORTEST = 16  # rounds
_LONGEST = 128


class Probing:
    """Asks for a try, after 16 plain rounds at first, and more and more rarely while they fail.

    One that stands is followed by another at once: few tries tell a text that has become easy from
    a lucky guess.
    """

    def __init__(self) -> None:
        self._interval = self._waited = _SHORTEST  # the first try is at once

    def reset(self) -> None:
        """Speculating pays."""
        self._interval, self._waited = _SHORTEST, 0

    def due(self) -> bool:
        """Asked once a plain round."""
        self._waited += 1
        return self._waited >= self._interval

    def learn(self, stood: bool) -> None:
        """A try is over."""
        if stood:
            self._interval = self._waited = _SHORTEST
        else:
            self._interval, self._waited = min(2 * self._interval, _LONGEST), 0
