"""Drafts as much as pays here and now, and nothing where nothing does."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from speccompile.runtime.control.allowance import Allowance
from speccompile.runtime.control.confidence import Confidence
from speccompile.runtime.control.controller import Outcome
from speccompile.runtime.control.costs import RoundCosts
from speccompile.runtime.control.plan import Plan
from speccompile.runtime.control.predictor import Predictor
from speccompile.runtime.control.probing import Probing
from speccompile.runtime.control.siblings import Siblings
from speccompile.runtime.control.survival import LONGEST, Survival, trial
from speccompile.runtime.drafting.draft import Effort, always
from speccompile.runtime.signals import Signals

__all__ = ["AdaptiveController", "Worth"]

_KNOWN = 0.15  # doubts about plain decoding's cost that are none
_SURE = 0.5  # nor are those that are so much of what speculating gains: two standard deviations
_OBVIOUS = 0.8  # what survives so surely is not watched: signals cost time, and would save little


class Worth(NamedTuple):
    """Of a proposal of one token: its cost, in plain steps, and the probability that it stands."""

    cost: float
    stands: float


class AdaptiveController:
    """Chooses the depth with the most tokens a second (`Plan`), by costs and survival as they are.

    Where the draft's signals have shown to tell tokens apart, or a predictor reads them, a round
    may go deeper or stop earlier, token by token: what was drawn stays, and only whether there is a
    next one depends on it. A round bets no more than the `Allowance` has, and where speculation
    does not pay, it is tried again now and then (`Probing`).
    """

    def __init__(
        self,
        costs: RoundCosts,
        survival: Survival | None = None,
        predictor: Predictor | None = None,
        *,
        longest: int = LONGEST,
    ) -> None:
        """Proposals are never deeper than `longest`, at most 15."""
        self._costs = costs
        self._survival = survival or Survival()
        self._confidence = Confidence(predictor)
        self._siblings = Siblings()
        self._allowance = Allowance()
        self._probing = Probing()
        self._longest = min(longest, LONGEST)
        self._again = 0  # rows that the next step is fed again
        self._rate = 0.0
        self._tries = False  # whether this round is a try of what seems not to pay

    def start(self) -> None:
        self._survival.start()
        self._confidence.start()
        self._allowance.start()
        self._again = 0

    def effort(self, room: int) -> Effort | None:
        seconds = self._costs.rounds(max(0, min(room, self._longest)), self._again)
        self._tries = False
        if len(seconds) == 1 or not seconds[0]:
            return None
        ahead = self._survival.ahead()
        plan = Plan(ahead[: len(seconds) - 1], seconds)
        self._rate = plan.rate
        if self._costs.doubt > max(_KNOWN, _SURE * plan.gain):
            return None
        affordable = float(seconds[0]) + self._allowance.credit * self._costs.step(1)
        deepest = int(np.searchsorted(seconds, affordable, "right")) - 1
        depth = plan.best(deepest) if deepest > 0 else 0
        self._confidence.begin(ahead)
        if depth:
            self._probing.reset()
            return self._planned(plan, depth, deepest, affordable)
        self._tries = self._probing.due() and deepest > 0
        return Effort(1, 1, self._watch) if self._tries else None

    def _planned(self, plan: Plan, depth: int, deepest: int, affordable: float) -> Effort:
        ahead = self._survival.ahead()
        go_on, reach = always if ahead[depth - 1] > _OBVIOUS else self._watch, depth
        if self._confidence.trusted:
            go_on, reach = _Judgement(self._confidence, plan, deepest).go_on, deepest
        rows = self._again + 1 + reach
        second = self._siblings.levels(ahead[:depth], rows, self.price)
        if self._costs.drafting(reach) + self._costs.step(rows + len(second)) > affordable:
            second = frozenset[int]()
        branches = {level: 1 + (level in second) for level in range(reach)} if second else {}
        price = self.price(rows + len(second))
        return Effort(reach, reach + len(second), go_on, branches, price=price)

    @property
    def worth(self) -> Worth | None:
        """Speculating pays where the second is above the first; None where no step was timed."""
        plain, single = self._costs.rounds(1)
        return Worth(single / plain - 1.0, float(self._survival.ahead()[0])) if plain else None

    def price(self, rows: int) -> float:
        """How probable it must be that a node stands, for a step of `rows` to take one more."""
        return self._rate * (self._costs.step(rows + 1) - self._costs.step(rows))

    def learn(self, outcome: Outcome) -> None:
        tried = trial(outcome)
        self._costs.learn(outcome)
        self._survival.learn(tried.stood, tried.fell)
        self._siblings.learn(tried)
        self._confidence.learn(tried)
        if self._tries and (tried.stood or tried.fell):
            self._probing.learn(tried.stood > 0)
        self._again = _out_of_order(outcome)
        self._book(outcome)

    def _book(self, outcome: Outcome) -> None:
        plain = self._costs.step(1)
        if plain:
            depth = max(outcome.proposal.depths())
            seconds = self._costs.drafting(depth) + self._costs.step(outcome.rows)
            self._allowance.book(outcome.accepted + 1, seconds / plain)

    def _watch(self, signals: Signals) -> bool:
        """Go on, and learn what such signals mean."""
        self._confidence.of(signals)
        return True


@dataclass
class _Judgement:
    """Whether a path is worth another token."""

    confidence: Confidence
    plan: Plan
    deepest: int
    survival: float = 1.0

    def go_on(self, signals: Signals) -> bool:
        self.survival *= self.confidence.of(signals)
        return self.survival > self.plan.threshold(self.confidence.seen, self.deepest)


def _out_of_order(outcome: Outcome) -> int:
    """Accepted rows that do not lie behind one another in the target's cache: fed again."""
    in_order = 0
    while in_order < len(outcome.path) and outcome.path[in_order] == in_order:
        in_order += 1
    return len(outcome.path) - in_order
