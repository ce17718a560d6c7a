"""What speculation may lose against plain decoding.

Estimates can be wrong, and a text can turn hostile at any time. So a round bets no more than the
controller can afford: it holds a credit in plain steps, to which every token adds a little and the
time that rounds save, and from which comes the time that they lose. Whatever happens, all requests
together take at most (1 + RATE) times as long as plain decoding, plus GRANT steps: on 100 tokens,
3 %. One alone may take KEPT steps longer, if those before it won them.
"""

from __future__ import annotations

__all__ = ["Allowance"]

_RATE = 0.015  # of plain time: what probing may cost for ever
_GRANT = 1.5  # plain steps: what a request may lose at its start
_KEPT = 4.0  # plain steps: what a request may lose of what those before it won
_MOST = 10.0  # plain steps: what may be lost of what was won in this request


class Allowance:
    """A credit, in plain steps."""

    def __init__(self) -> None:
        self.credit = _GRANT

    def start(self) -> None:
        """A request begins; of what the last ones won, a part stays."""
        self.credit = min(self.credit, _KEPT)

    def book(self, tokens: int, steps: float) -> None:
        """A round emitted `tokens` in the time of so many plain steps."""
        self.credit = min(self.credit + tokens * (1.0 + _RATE) - steps, _MOST)
