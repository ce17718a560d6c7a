"""How sure it is, token by token, that the path being drafted stands."""

from __future__ import annotations

from bisect import bisect

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.control.features import Features
from speccompile.runtime.control.logistic import Shifts, logit, sigmoid
from speccompile.runtime.control.predictor import Network, Predictor
from speccompile.runtime.control.survival import LONGEST, Trial, conditional
from speccompile.runtime.signals import Signals

__all__ = ["Confidence"]

_EDGES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98, 0.995)
_WORTH = 1.0
_TRUSTED = 32  # outcomes of each kind


class Confidence:
    """Gives the probability that a token stands, from its signals.

    That is what is usual at its position, or what a predictor says, corrected by how often tokens
    like it (in the draft's probability, or in what the predictor says) have stood so far.
    """

    def __init__(self, predictor: Predictor | None = None) -> None:
        self._network = Network(predictor) if predictor else None
        self._features = Features()
        self._shifts = Shifts(len(_EDGES) + 1, _WORTH)
        self._outcomes = [0, 0]
        self._usual: list[float] = []
        self._seen: list[tuple[int, float]] = []

    @property
    def trusted(self) -> bool:
        """Whether enough tokens with signals stood, and enough fell, to tell them apart."""
        return min(self._outcomes) >= _TRUSTED

    def start(self) -> None:
        """A request begins."""
        self._features.start()

    def begin(self, ahead: NDArray[np.float64]) -> None:
        """A round begins; `ahead` is `Survival.ahead`."""
        self._usual = conditional(ahead)
        self._features.begin(ahead)
        self._seen = []

    @property
    def seen(self) -> int:
        """Tokens of this round that were told of."""
        return len(self._seen)

    def of(self, signals: Signals) -> float:
        """Of the path's next token, if those before it stand."""
        position = min(len(self._seen), LONGEST - 1)
        if self._network:
            given = self._network.confidence(self._features.of(signals), position)
            likeness = bisect(_EDGES, given)
        else:
            given = self._usual[position]
            likeness = bisect(_EDGES, signals.probability)
        confidence = sigmoid(logit(given) + float(self._shifts.values[likeness]))
        self._seen.append((likeness, confidence))
        return confidence

    def learn(self, trial: Trial) -> None:
        """A round is over."""
        self._features.learn(trial)
        for position, (likeness, confidence) in enumerate(self._seen[: trial.stood + trial.fell]):
            stood = position < trial.stood
            self._shifts.learn(likeness, confidence, stood)
            self._outcomes[stood] += 1
