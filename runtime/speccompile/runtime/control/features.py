"""What is known of a proposed token before it is verified, as numbers."""

from __future__ import annotations

from math import log

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.control.survival import LONGEST, Trial, conditional
from speccompile.runtime.signals import Signals

__all__ = ["FEATURES", "Features"]

FEATURES = (
    "entropy",
    "first",
    "second",
    "gap",
    "probability",
    "log_probability",
    "position",
    "survival",
    "usual_here",
    "usual",
    "last_share",
    "match",
)
"""Their order. The draft's `Signals` of the token; its position, from 0 to 1; the probability that
the draft gives to the path before it; how usual it is at this position and at the first that a
token stands; the share of the last proposal that stood; the length of an n-gram's match, or 0."""

_LEAST = 1e-5  # a probability whose logarithm is looked at
_MATCH = 16.0


class Features:
    """Follows the rounds and gives a token's features, always in the same array."""

    def __init__(self) -> None:
        self._values = np.zeros(len(FEATURES), np.float32)
        self._usual: list[float] = []
        self._position, self._survival, self._last = 0, 1.0, 0.0

    def start(self) -> None:
        """A request begins."""
        self._last = 0.0

    def begin(self, ahead: NDArray[np.float64]) -> None:
        """A round begins; `ahead` is `Survival.ahead`."""
        self._usual = conditional(ahead)
        self._position, self._survival = 0, 1.0

    def of(self, signals: Signals, match: int = 0) -> NDArray[np.float32]:
        """Those [12] of the path's next token."""
        probability = signals.probability
        position = min(self._position, LONGEST - 1)
        self._values[:] = (
            signals.entropy,
            signals.first,
            signals.second,
            signals.first - signals.second,
            probability,
            log(max(probability, _LEAST)),
            position / LONGEST,
            self._survival,
            self._usual[position],
            self._usual[0],
            self._last,
            min(match / _MATCH, 1.0),
        )
        self._position += 1
        self._survival *= probability
        return self._values

    def learn(self, trial: Trial) -> None:
        """A round is over."""
        if trial.stood or trial.fell:
            self._last = trial.stood / max(self._position, trial.stood + trial.fell)
