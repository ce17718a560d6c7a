"""Check a session while it runs: every token of every round, against the target's law of it.

A round has the target's rows anyway, so nothing is computed twice but laws: no step more, and no
memory that grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from speccompile.plugins.laws import Law
from speccompile.runtime.control.controller import Controller, Outcome
from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.proof.acceptance import Acceptance
from speccompile.runtime.proof.pit import LARGEST_Z, Pit
from speccompile.runtime.request import Rule

__all__ = ["Checked", "Watch"]


@dataclass
class Watch:
    """What is known of all rounds that it was shown.

    `pit` takes every token. `acceptance` takes the decisions whose probability follows from the
    laws at their node alone: whether the target's own choice is among the children of a node, where
    nothing was drawn, and whether the token rule accepts the one child of a node. Traversal judges
    whole paths, by laws behind tokens that were never drawn: of that, `pit` alone can tell.
    """

    pit: Pit = field(default_factory=Pit)
    acceptance: Acceptance = field(default_factory=Acceptance)

    def observe(self, outcome: Outcome, rule: Rule = "traversal") -> None:
        """A round that was judged by `rule`; one without logits says nothing."""
        if outcome.logits is None or outcome.sampler is None:
            return
        proposal, path = outcome.proposal, list[int]()
        # Behind shared noise, draft and target are not independent.
        decides = not outcome.sampler.derived and (rule == "token" or not proposal.drawn)
        for depth, node in enumerate(outcome.path, start=1):
            law = outcome.sampler.law(outcome.logits[node], outcome.tokens, path)
            stands = depth < len(outcome.path)
            probability = _probability(proposal, node, law) if decides else None
            if probability is not None:
                self.acceptance.add(probability, stands)
            path.append(proposal.tokens[outcome.path[depth] - 1] if stands else outcome.token)
            # With the target's own noise, a draft's guess is not known before the token.
            known = not outcome.sampler.sampling.audited
            self.pit.add(law, path[-1], _drawn_from(proposal, node, len(law)) if known else None)

    @property
    def refusal(self) -> str | None:
        """Why the output cannot have the target's law, unless it can."""
        if refusal := self.pit.refusal:
            return refusal
        if abs(self.acceptance.z) > LARGEST_Z:
            return (
                f"{self.acceptance.accepted} proposals stood where "
                f"{self.acceptance.expected:.0f} should have (z {self.acceptance.z:.1f})"
            )
        return None

    def __str__(self) -> str:
        pit, acceptance = self.pit, self.acceptance
        text = f"KS {pit.statistic:.4f} (at most {pit.limit:.4f})"
        if acceptance.tested:
            text += f", acceptance z {acceptance.z:+.1f} over {acceptance.tested} decisions"
        return text

    def state(self) -> dict[str, object]:
        """All there is, as JSON, to go on from."""
        return {"pit": self.pit.state(), "acceptance": self.acceptance.state()}

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Watch:
        """The one whose `state` that is."""
        return cls(Pit.of(state["pit"]), Acceptance.of(state["acceptance"]))


@dataclass(frozen=True)
class Checked:
    """A controller whose rounds are all shown to a `watch`."""

    controller: Controller
    watch: Watch
    rule: Rule = "traversal"

    def start(self) -> None:
        self.controller.start()

    def effort(self, room: int) -> Effort | None:
        return self.controller.effort(room)

    def learn(self, outcome: Outcome) -> None:
        self.watch.observe(outcome, self.rule)
        self.controller.learn(outcome)


def _drawn_from(proposal: Proposal, node: int, size: int) -> Law | None:
    """The law [V] of the first child of a node."""
    children = proposal.children(node)
    if not children:
        return None
    law = proposal.laws[children[0] - 1]
    if law is None:
        law = np.zeros(size, np.float32)
        law[proposal.tokens[children[0] - 1]] = 1.0
    return law


def _probability(proposal: Proposal, node: int, law: Law) -> float | None:
    """That a child of a node stands, before it is drawn; None where more than this decides."""
    children = proposal.children(node)
    if not children or (proposal.drawn and len(children) > 1):
        return None
    drawn_from = proposal.laws[children[0] - 1]
    if drawn_from is not None:
        return float(np.minimum(law, drawn_from).sum(dtype=np.float64))
    tokens = {proposal.tokens[child - 1] for child in children}
    return float(sum(law[token] for token in tokens))
