"""Choose among drafters by what each would have had accepted so far (HedgeSpec, arXiv 2510.20064).

A choice by history keeps the target's distribution. One by what the drafters have just drawn, the
surest of them say, does not: a token would then be verified by a law that it does not have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from speccompile.plugins.philox import UNIFORM_BITS
from speccompile.runtime.drafting.certain import add_beside
from speccompile.runtime.drafting.draft import Draft, Effort
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.metered import Work
from speccompile.runtime.sampler import Sampler

__all__ = ["Hedge", "Weights", "agreement"]


class Hedge:
    """Has one drafter propose a round, drawn by `Weights` before anything else is.

    `lookups` cost nothing and draw nothing: they are asked every round, so that all of them are
    judged, and one that has nothing to say is not chosen. Of the `models`, only one that is chosen
    is asked. ``costs`` are what their proposals take, in steps of the target; by default nothing.
    """

    name = "hedge"

    def __init__(
        self,
        lookups: Sequence[Draft],
        models: Sequence[Draft] = (),
        *,
        costs: Sequence[float] | None = None,
        rate: float = 4.0,
        memory: float = 0.9,
    ) -> None:
        self._lookups, self._models = list(lookups), list(models)
        self._drafters = [*self._lookups, *self._models]
        costs = [0.0] * len(self._models) if costs is None else costs
        if len(costs) != len(self._models):
            raise ValueError(f"{len(costs)} costs for {len(self._models)} models")
        self._weights = Weights([0.0] * len(self._lookups) + [*costs], rate=rate, memory=memory)

    @property
    def work(self) -> Work:
        return sum((drafter.work for drafter in self._drafters), Work())

    def start(self, prompt: Sequence[int]) -> None:
        """A request begins with equal weights: what it draws depends on no earlier one."""
        self._weights.start()
        for drafter in self._drafters:
            drafter.start(prompt)

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        self._weights.learn(tokens)
        inner = replace(effort, beside=())
        asked = {
            number: lookup.propose(tokens, inner, sampler)
            for number, lookup in enumerate(self._lookups)
        }
        able = [
            number
            for number in range(len(self._drafters))
            if number not in asked or asked[number].tokens
        ]
        proposal = Proposal()
        if able:
            # No draft draws the root: its number is free to decide this.
            number = sampler.randomness.draft(len(tokens) - 1, 0)
            chosen = self._weights.draw(able, number)
            drafter = self._drafters[chosen]
            if chosen not in asked:
                asked[chosen] = drafter.propose(tokens, inner, sampler)
            found = asked[chosen]
            sources = found.sources or [drafter.name] * len(found.tokens)
            proposal = Proposal([*found.tokens], [*found.parents], [*found.laws], [*sources])
        self._weights.note(tokens, asked)
        add_beside(proposal, effort, "beside")
        return proposal


class Weights:
    """Exponential weights with full information, the past discounted.

    A drafter's reward for a round is the share it would have brought of the tokens that came, the
    target's own included, per cost: in [0, 1]. Its weight is exp(rate * the discounted sum of its
    rewards), each worth `memory` times the next. A round without a proposal of it changes nothing
    for it, and before its first it is taken to be perfect.
    """

    def __init__(self, costs: Sequence[float], *, rate: float = 4.0, memory: float = 0.9) -> None:
        """`costs` are those of a proposal of each drafter, in steps of the target."""
        self._best = [1.0 / (1.0 + cost) for cost in costs]
        self._rate, self._memory = rate, memory
        self.start()

    def start(self) -> None:
        """Forget all."""
        self._means = [*self._best]
        self._noted: dict[int, Proposal] = {}
        self._length = 0

    def learn(self, tokens: Sequence[int]) -> None:
        """Score what was last noted by how `tokens` went on."""
        # Rounds that nobody here had a part in are no evidence: none ends beyond the deepest guess.
        reach = 1 + max((max(each.depths()) for each in self._noted.values()), default=0)
        emitted = tokens[self._length : self._length + reach]
        for number, proposal in self._noted.items():
            share = (agreement(proposal, emitted) + 1) / (len(emitted) + 1)
            reward = share * self._best[number]
            self._means[number] += (1.0 - self._memory) * (reward - self._means[number])
        self._noted = {}

    def note(self, tokens: Sequence[int], proposals: dict[int, Proposal]) -> None:
        """What the drafters, by their number, think that comes after `tokens`."""
        self._length = len(tokens)
        self._noted = {number: each for number, each in proposals.items() if each.tokens}

    def ranking(self) -> list[int]:
        """All drafters, the weightiest first, of equals the first."""
        return sorted(range(len(self._means)), key=lambda number: -self._means[number])

    def draw(self, able: Sequence[int], number: int) -> int:
        """One of the drafters `able`, with its weight, by a number of 53 bits."""
        best = max(self._means[each] for each in able)
        scale = self._rate / (1.0 - self._memory)
        weights = [math.exp(scale * (self._means[each] - best)) for each in able]
        place = math.ldexp(number, -UNIFORM_BITS) * sum(weights)
        for each, weight in zip(able, weights, strict=True):
            place -= weight
            if place < 0.0:
                return each
        return able[-1]


def agreement(proposal: Proposal, tokens: Sequence[int]) -> int:
    """How many of `tokens`, from the first on, are a path of a proposal."""
    depths = {0: 0}  # of the nodes on such paths
    for node, (token, parent) in enumerate(
        zip(proposal.tokens, proposal.parents, strict=True), start=1
    ):
        depth = depths.get(parent, len(tokens))
        if depth < len(tokens) and tokens[depth] == token:
            depths[node] = depth + 1
    return max(depths.values())
