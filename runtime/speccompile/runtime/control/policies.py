"""Roll-back policies: what a rejection says about the next proposal.

Accepted tokens and the one behind them are committed whatever a policy says: it shapes the next
round's effort alone, before anything of it is drawn. So the law of the output is the target's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from speccompile.runtime.control.controller import Controller, Outcome
from speccompile.runtime.control.survival import trial
from speccompile.runtime.drafting.draft import Effort

__all__ = [
    "POLICIES",
    "CertainAtOpenEnd",
    "HalveAndBranch",
    "Policy",
    "PolicyController",
    "RetryWider",
]

_CERTAIN = 0.9
"""Of the target's best token: the draft was wrong, and not the text open."""
_MULTIMODAL = 0.5
"""Of the second token's probability to the first's: a first guess, even the target's own, stands in
two of three cases at most, and a second one in a third."""
_OPEN = 2.0
"""Nats of the target's entropy: as of seven tokens that are equally probable."""
_BESIDE = 2


class Policy(Protocol):
    """One rule."""

    @property
    def name(self) -> str:
        """For the telemetry."""
        ...

    def shape(self, effort: Effort, outcome: Outcome) -> Effort | None:
        """The next round's `effort` after the last one's `outcome`; None where it says nothing."""
        ...


class RetryWider:
    """The first token fell, and the target was certain: the draft had lost the thread.

    The next round tries as deep, and beside the draft's first token the two that the target held
    most probable besides its own: what it passed over often comes next.
    """

    name = "retry-wider"

    def shape(self, effort: Effort, outcome: Outcome) -> Effort | None:
        if outcome.accepted or not outcome.proposal.tokens or outcome.target.max() < _CERTAIN:
            return None
        others = outcome.row.copy()
        others[outcome.token] = -np.inf
        best = np.argpartition(-others, _BESIDE)[:_BESIDE].tolist()
        beside = tuple(sorted(best, key=lambda token: -others[token]))
        return replace(effort, nodes=effort.nodes + len(beside), beside=beside)


class HalveAndBranch:
    """A token in the middle fell, and the target had two in mind.

    The next round goes half as deep as the last one, and has two children at that depth.
    """

    name = "halve-and-branch"

    def shape(self, effort: Effort, outcome: Outcome) -> Effort | None:
        stood, reached = trial(outcome).stood, max(outcome.proposal.depths())
        if not 0 < stood < reached - 1 or outcome.accepted != stood:
            return None
        second, first = np.partition(outcome.target, -2)[-2:]
        if second <= _MULTIMODAL * first:
            return None
        depth = min(effort.depth, max(1, reached // 2))
        level = min(stood, depth - 1)
        nodes = max(depth, effort.nodes - effort.depth + depth) + 1
        return replace(effort, depth=depth, nodes=nodes, branches={**effort.branches, level: 2})


class CertainAtOpenEnd:
    """The proposal stood up to its end or nearly, and there the text is open.

    No guess is likely to stand: the next round makes one at most, the draft's likeliest. What the
    target chooses with is not changed.
    """

    name = "certain-at-open-end"

    def shape(self, effort: Effort, outcome: Outcome) -> Effort | None:
        reached = max(outcome.proposal.depths())
        if not outcome.accepted or outcome.accepted < reached - 1:
            return None
        law = outcome.target[outcome.target > 0]
        if -float((law * np.log(law)).sum()) <= _OPEN:
            return None
        return replace(effort, depth=1, nodes=1, branches={}, beside=(), certain=True)


POLICIES: Sequence[Policy] = (RetryWider(), HalveAndBranch(), CertainAtOpenEnd())
"""All of them; of one outcome, at most one has something to say."""


class PolicyController:
    """A controller whose efforts are shaped by policies; the effort says which did.

    Where it decodes plainly, no policy has anything to shape.
    """

    def __init__(self, controller: Controller, policies: Sequence[Policy] = POLICIES) -> None:
        self.controller = controller
        self._policies = tuple(policies)
        self._counts = Counter[str]()
        self._outcome: Outcome | None = None

    @property
    def counts(self) -> Mapping[str, int]:
        """Rounds that each policy shaped, by its name."""
        return self._counts

    def start(self) -> None:
        self._outcome = None
        self.controller.start()

    def effort(self, room: int) -> Effort | None:
        effort = self.controller.effort(room)
        if effort is None or self._outcome is None:
            return effort
        names: list[str] = []
        for policy in self._policies:
            shaped = policy.shape(effort, self._outcome)
            if shaped is not None:
                effort = shaped
                names.append(policy.name)
        self._counts.update(names)
        return replace(effort, policies=(*effort.policies, *names))

    def learn(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self.controller.learn(outcome)
