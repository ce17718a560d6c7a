"""What does not keep the target's law, though each has been shipped or proposed somewhere.

The first judge wrongly; the last two propose what then is not what it is declared to be.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.laws import Law
from speccompile.runtime import verify as production
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.engine import Logits
from speccompile.runtime.proof.enumeration import Decisions
from speccompile.runtime.proof.models import Text, exact_law
from speccompile.runtime.request import Rule
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.verify import Verdict
from tests.exact.rounds import Propose, Verify

__all__ = [
    "Judge",
    "Round",
    "as_if_replaced",
    "block",
    "by",
    "declared_sharper",
    "first_failure",
    "fresh_after_match",
    "greedy_where_open",
    "residual_from_target",
    "roll_back_to_half",
    "surest_draft",
    "token_residual",
    "typical",
    "without_unlikely",
]

_TYPICAL = 0.3
_OPEN = 0.8  # nats
_UNLIKELY = 0.4


@dataclass(frozen=True)
class Round:
    """The arguments of `runtime.verify.verify`; what a judge decides, it asks `decisions` for."""

    decisions: Decisions
    rows: Logits
    proposal: Proposal
    text: Sequence[int]
    sampler: Sampler
    rule: Rule

    def verify(self, laws: Sequence[Law | None] | None = None) -> Verdict:
        """The right verdict, had the proposal been drawn from these laws."""
        proposal = self.proposal if laws is None else replace(self.proposal, laws=[*laws])
        return production.verify(self.rows, proposal, self.text, self.sampler, self.rule)

    def fresh(self, node: int) -> int:
        """A draw of the target behind a node."""
        return self.decisions.choose(exact_law(self.rows[node]).tolist())


Judge = Callable[[Round], Verdict]


def by(decisions: Decisions, judge: Judge) -> Verify:
    """A judge in the place of the production code."""

    def verify(
        rows: Logits, proposal: Proposal, text: Sequence[int], sampler: Sampler, rule: Rule
    ) -> Verdict:
        return judge(Round(decisions, rows, proposal, text, sampler, rule))

    return verify


def declared_sharper(each: Round) -> Verdict:
    """The draft's laws at another temperature than it drew at."""
    laws = (None if law is None else law**1.5 for law in each.proposal.laws)
    return each.verify([None if law is None else law / law.sum() for law in laws])


def as_if_replaced(each: Round) -> Verdict:
    """All siblings by the law of the first."""
    first: dict[int, Law | None] = {}
    pairs = zip(each.proposal.parents, each.proposal.laws, strict=True)
    return each.verify([first.setdefault(parent, law) for parent, law in pairs])


def residual_from_target(each: Round) -> Verdict:
    """After a rejection, the target's own law."""
    path = each.verify().path
    return Verdict(path, each.fresh(path[-1]))


def fresh_after_match(each: Round) -> Verdict:
    """A proposal stands if the target draws the same; if not, the target draws once more."""
    path = [0]
    for token in each.proposal.tokens:
        if each.fresh(path[-1]) != token:
            break
        path.append(len(path))
    return Verdict(path, each.fresh(path[-1]))


def roll_back_to_half(each: Round) -> Verdict:
    """After a rejection behind half of the proposal, all that is behind that half is forgotten."""
    verdict, length = each.verify(), len(each.proposal.tokens)
    if not length // 2 < len(verdict.path) <= length:
        return verdict
    return Verdict(verdict.path[: length // 2], each.proposal.tokens[length // 2 - 1])


def typical(each: Round) -> Verdict:
    """Typical acceptance (Medusa, arXiv 2401.10774): what the target finds probable enough."""
    path = [0]
    for token in each.proposal.tokens:
        law = exact_law(each.rows[path[-1]])
        if law[token] < min(_TYPICAL, _TYPICAL**0.5 * np.exp(-_entropy(law))):
            break
        path.append(len(path))
    return Verdict(path, each.fresh(path[-1]))


def greedy_where_open(each: Round) -> Verdict:
    """Behind a proposal that stood, an uncertain target takes its most probable token."""
    verdict = each.verify()
    law = exact_law(each.rows[verdict.path[-1]])
    if len(verdict.path) <= len(each.proposal.tokens) or _entropy(law) < _OPEN:
        return verdict
    return Verdict(verdict.path, int(law.argmax()))


def block(each: Round, *, stop: bool = False, as_token: bool = False) -> Verdict:
    """Block verification (arXiv 2403.10444) of a drawn chain, as the paper has it: right.

    Wrong, where it is to `stop` at the first prefix that falls instead of looking for the last that
    stands, and where the residual is that of the token rule.
    """
    p = [exact_law(row) for row in each.rows]
    q = [law for law in each.proposal.laws if law is not None]
    weights = [1.0]
    for index, token in enumerate(each.proposal.tokens):
        weights.append(min(1.0, weights[-1] * float(p[index][token] / q[index][token])))
    accepted, last = 0, len(q)
    for count in range(1, last + 1):
        stands = weights[count]
        if count < last:
            left = float(np.maximum(stands * p[count] - q[count], 0.0).sum())
            stands = left / (left + 1.0 - stands) if left + 1.0 - stands else 1.0
        if each.decisions.choose([stands, 1.0 - stands]) == 0:
            accepted = count
        elif stop:
            break
    following = p[accepted]
    if accepted < last:
        weight = 1.0 if as_token else weights[accepted]
        following = np.maximum(weight * following - q[accepted], 0.0)
    token = each.decisions.choose((following / following.sum()).tolist())
    return Verdict(list(range(accepted + 1)), token)


first_failure: Judge = partial(block, stop=True)
token_residual: Judge = partial(block, as_token=True)


def without_unlikely(propose: Propose) -> Propose:
    """A chain is cut before the first token that its own draft finds unlikely."""

    def cut(text: Text, sampler: Sampler) -> Proposal:
        whole, proposal = propose(text, sampler), Proposal()
        for token, parent, law in zip(whole.tokens, whole.parents, whole.laws, strict=True):
            if law is None or law[token] < _UNLIKELY:
                break
            proposal.add(token, parent, law)
        return proposal

    return cut


def surest_draft(left: Propose, right: Propose) -> Propose:
    """Of two drafts' chains, the one that its own draft finds more likely."""

    def sureness(proposal: Proposal) -> float:
        pairs = zip(proposal.tokens, proposal.laws, strict=True)
        return float(np.prod([law[token] for token, law in pairs if law is not None]))

    def choose(text: Text, sampler: Sampler) -> Proposal:
        return max(left(text, sampler), right(text, sampler), key=sureness)

    return choose


def _entropy(law: NDArray[np.float64]) -> float:
    likely = law[law > 0.0]
    return -float(likely @ np.log(likely))
