"""Collects what a predictor is trained on, round by round."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from speccompile.runtime.control.controller import Controller, Outcome
from speccompile.runtime.control.features import Features
from speccompile.runtime.control.survival import Survival, trial
from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.signals import Signals

__all__ = ["RoundLog", "Sample"]


class Sample(NamedTuple):
    """A proposed token of a first path: its `Features`; whether it was `tested`, that is, whether
    the tokens before it stood; and whether it stood."""

    round: int
    position: int
    features: tuple[float, ...]
    tested: bool
    accepted: bool


class RoundLog:
    """A controller that decides as another one does, and writes down what became of each token."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._survival = Survival()
        self._features = Features()
        self._path: list[tuple[float, ...]] = []
        self._rounds = 0
        self._samples: list[Sample] = []

    @property
    def samples(self) -> Sequence[Sample]:
        """In the order of rounds and positions."""
        return self._samples

    def start(self) -> None:
        self._controller.start()
        self._survival.start()
        self._features.start()

    def effort(self, room: int) -> Effort | None:
        effort = self._controller.effort(room)
        self._features.begin(self._survival.ahead())
        self._path = []
        if effort is None:
            return None
        decide = effort.go_on

        def go_on(signals: Signals) -> bool:
            self._path.append(tuple(self._features.of(signals).tolist()))
            return decide(signals)

        return replace(effort, go_on=go_on)

    def learn(self, outcome: Outcome) -> None:
        self._controller.learn(outcome)
        tried = trial(outcome)
        for position, features in enumerate(self._path):
            tested = position < tried.stood + tried.fell
            accepted = position < tried.stood
            self._samples.append(Sample(self._rounds, position, features, tested, accepted))
        self._features.learn(tried)
        self._survival.learn(tried.stood, tried.fell)
        self._rounds += 1
