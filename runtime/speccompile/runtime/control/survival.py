"""How far proposals have stood, and from it how far the next one will."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.control.controller import Outcome
from speccompile.runtime.control.logistic import Shifts, logit

__all__ = ["LONGEST", "Survival", "Trial", "conditional", "trial"]

LONGEST = 15
"""Tokens of a path: with the root, the 16 rows up to which a build measures costs."""

_UNMEASURED = 0.7  # optimistic: a draft that is never tried is never found out to be good
_LEVELS = np.linspace(-5.0, 5.0, 17)  # log odds: acceptance from 0.7 % to 99.3 %
_SPREAD = 1.5  # of requests around what was measured, in log odds
_CHANGE = 1 / 80  # how probable it is that a round finds another kind of text
_DOUBT = 0.02  # of a change: to anything, rather than to what is usual
_PRIOR_ROUNDS = 16  # what the prior is worth
_MEMORY_ROUNDS = 1000  # after which it is no longer an average of all rounds
_POSITION_WORTH = 8.0


class Trial(NamedTuple):
    """What became of a proposal's first path: how many of its tokens stood, whether the next one
    `fell` (or was there none), and whether a sibling of that one stood instead, if it had any."""

    stood: int
    fell: bool
    rescued: bool | None


def trial(outcome: Outcome) -> Trial:
    """A round's; behind a sibling that stood, nothing belongs to the first path."""
    children: dict[int, list[int]] = {}
    for child, parent in enumerate(outcome.proposal.parents, start=1):
        children.setdefault(parent, []).append(child)
    path, stood = outcome.path, 0
    while tried := children.get(path[stood]):
        if stood + 1 == len(path) or path[stood + 1] != tried[0]:
            rescued = stood + 1 < len(path) if len(tried) > 1 else None
            return Trial(stood, True, rescued)
        stood += 1
    return Trial(stood, False, None)


def conditional(ahead: NDArray[np.float64]) -> list[float]:
    """Of `Survival.ahead`: each token's own probability, given that those before it stood."""
    own: list[float] = (ahead / np.concatenate(([1.0], ahead[:-1]))).tolist()
    return own


class Survival:
    """The probability that the first tokens of a proposal all stand, by their number.

    A text has a level of acceptance, in log odds, and positions differ from it by shifts that
    hardly change. What is known of the level is a distribution over a few values, moved by every
    round by Bayes' rule and drawn back a little to what is usual, since texts change: a few rounds
    tell one regime from another, while a steady one is averaged over tens of rounds. That the first
    tokens stood tells of the level, and so of the next ones: no geometric decay is assumed.
    What is usual is the average over all requests. An untested position is like the last tested.
    """

    def __init__(self, acceptance: Sequence[float] = ()) -> None:
        """`acceptance[i]` of position i, given that those before it stood, as it was measured."""
        measured = [logit(probability) for probability in acceptance[:LONGEST]]
        self._usual = _around(acceptance[0] if acceptance else _UNMEASURED)
        self._rounds = _PRIOR_ROUNDS
        self._shifts = Shifts(LONGEST, _POSITION_WORTH)
        # Each is to the position before it, so that what is not tested goes on as what is.
        self._shifts.values[1 : len(measured)] = np.diff(measured)
        self._belief = self._usual
        self._update()

    def start(self) -> None:
        """A request begins: its text may be of any kind."""
        self._belief = self._usual
        self._update()

    def ahead(self) -> NDArray[np.float64]:
        """[LONGEST]: that of the first token, of the first two, and so on; never rising."""
        return self._ahead

    def learn(self, stood: int, fell: bool) -> None:
        """The first `stood` tokens of a path stood and, if one `fell`, it was the next."""
        if stood or fell:
            self._learn_shifts(stood, fell)
            self._learn_level(stood, fell)
        # A plain round, too, may have brought another kind of text.
        anything = _DOUBT / len(_LEVELS) + (1.0 - _DOUBT) * self._usual
        self._belief = self._belief + _CHANGE * (anything - self._belief)
        self._update()

    def _learn_shifts(self, stood: int, fell: bool) -> None:
        for position, expected in enumerate(conditional(self._ahead)[: stood + fell]):
            if position:  # The first has the level itself.
                self._shifts.learn(position, expected, position < stood)

    def _learn_level(self, stood: int, fell: bool) -> None:
        likelihood = self._standing[stood - 1] if stood else np.ones_like(_LEVELS)
        if fell:
            likelihood = likelihood * (1.0 - self._conditional[stood])
        belief = self._belief * likelihood
        self._belief = belief / belief.sum()
        self._rounds = min(self._rounds + 1, _MEMORY_ROUNDS)
        self._usual = self._usual + (self._belief - self._usual) / self._rounds

    def _update(self) -> None:
        odds = np.cumsum(self._shifts.values)[:, None] + _LEVELS
        self._conditional = 1.0 / (1.0 + np.exp(-odds))  # [LONGEST, levels]
        self._standing = np.cumprod(self._conditional, axis=0)
        self._ahead: NDArray[np.float64] = self._standing @ self._belief


def _around(acceptance: float) -> NDArray[np.float64]:
    """A distribution over the levels that is spread as texts are, and whose mean is `acceptance`,
    as nearly as their ends allow."""
    centers = np.linspace(2.0 * _LEVELS[0], 2.0 * _LEVELS[-1], 401)[:, None]
    candidates = np.exp(-0.5 * ((_LEVELS - centers) / _SPREAD) ** 2)
    candidates /= candidates.sum(axis=1, keepdims=True)
    means = candidates @ (1.0 / (1.0 + np.exp(-_LEVELS)))
    nearest: NDArray[np.float64] = candidates[np.abs(means - acceptance).argmin()]
    return nearest
