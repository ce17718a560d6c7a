"""A round of the runtime over small models: a proposal is drawn, the target's rows judge it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from speccompile.runtime import verify as production
from speccompile.runtime.drafting.draft import Draft, Effort
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.engine import Logits
from speccompile.runtime.proof.enumeration import Decisions
from speccompile.runtime.proof.models import Model, Text
from speccompile.runtime.request import Rule
from speccompile.runtime.sampler import Guess, Sampler
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.verify import Verdict
from tests.exact.models import PROMPT, Distribution, continued, distance, target_law

__all__ = [
    "CERTAIN",
    "Propose",
    "Shape",
    "Verify",
    "drafted",
    "error",
    "grown",
    "mean_accepted",
    "round_law",
    "rows",
]

CERTAIN = -1
Shape = Sequence[tuple[int, int]]
"""For each node, what it follows, 0 for the root or 1 for the first node, and which draft proposes
it. A draft draws its children of one node without replacement, and apart from the other drafts;
where it is CERTAIN, the first one proposes what it thinks most likely."""

Propose = Callable[[Text, Sampler], Proposal]
Verify = Callable[[Logits, Proposal, Sequence[int], Sampler, Rule], Verdict]


def grown(shape: Shape, *drafts: Model) -> Propose:
    """A tree of that shape, but for nodes for which no token is left."""

    def propose(text: Text, sampler: Sampler) -> Proposal:
        proposal = Proposal()
        numbers: dict[int, int | None] = {0: 0}
        guesses: dict[tuple[int, int], Iterator[Guess]] = {}
        for index, (parent, source) in enumerate(shape, start=1):
            above = numbers[parent]
            if above is None:
                numbers[index] = None
                continue
            if (parent, source) not in guesses:
                path = proposal.path(above)
                guesses[parent, source] = iter(
                    sampler.of_drafter(max(source, 0)).guesses(
                        drafts[max(source, 0)].row((*text, *path)),
                        text,
                        path,
                        shape.count((parent, source)),
                        node=index,
                        certain=source == CERTAIN,
                    )
                )
            guess = next(guesses[parent, source], None)
            numbers[index] = proposal.add(guess.token, above, guess.law) if guess else None
        return proposal

    return propose


def drafted(make: Callable[[], Draft], effort: Effort, *, undeclared: bool = False) -> Propose:
    """What a drafter of the runtime proposes, a new one every time.

    Where it is `undeclared` that tokens were drawn, they are as good as any guess.
    """

    def propose(text: Text, sampler: Sampler) -> Proposal:
        draft = make()
        draft.start(text)
        proposal = draft.propose(text, effort, sampler)
        return replace(proposal, laws=[None] * len(proposal.laws)) if undeclared else proposal

    return propose


def round_law(
    decisions: Decisions,
    target: Model,
    propose: Propose,
    rule: Rule = "traversal",
    verify: Verify = production.verify,
    text: Text = PROMPT,
) -> Distribution:
    """Of what one round emits behind a text."""

    def one_round() -> Text:
        sampler = Sampler(Sampling(1.0))
        proposal = propose(text, sampler)
        verdict = verify(rows(target, text, proposal), proposal, text, sampler, rule)
        return (*(proposal.tokens[node - 1] for node in verdict.path[1:]), verdict.token)

    return decisions.law(one_round)


def error(
    decisions: Decisions,
    target: Model,
    propose: Propose,
    rule: Rule = "traversal",
    *,
    length: int,
    verify: Verify = production.verify,
    measure: Callable[[Distribution, Distribution], float] = distance,
) -> float:
    """How far the law of the first `length` tokens is from the target's: a round, then the target
    alone."""
    found = continued(target, round_law(decisions, target, propose, rule, verify), length)
    return measure(found, target_law(target, length))


def mean_accepted(
    decisions: Decisions, target: Model, propose: Propose, rule: Rule = "traversal"
) -> float:
    """How many proposed tokens stand."""
    found = round_law(decisions, target, propose, rule)
    return sum(probability * (len(emitted) - 1) for emitted, probability in found.items())


def rows(target: Model, text: Text, proposal: Proposal) -> Logits:
    """The target's, of the root and of every node: [n + 1, V]."""
    nodes = range(len(proposal.tokens) + 1)
    return np.stack([target.row((*text, *proposal.path(node))) for node in nodes])
