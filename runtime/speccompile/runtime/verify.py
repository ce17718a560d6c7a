"""Judge a proposal by the target's rows, with the rule that keeps the target's output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from speccompile.plugins.laws import Law
from speccompile.plugins.schema import INVALID
from speccompile.plugins.spec_verify import Tree, judge
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.engine import Logits
from speccompile.runtime.errors import RequestError
from speccompile.runtime.lossy import follow
from speccompile.runtime.request import AnyRule
from speccompile.runtime.sampler import Sampler

__all__ = ["LEAST_MARGIN", "Verdict", "verify"]

LEAST_MARGIN = 1e-3
"""In logits. A row off the first chain attends over other cache slots than it will when it is
committed: the same numbers, summed in another order, up to 2e-6 of the largest logit apart. Where
the target is closer to undecided than this, the row is not believed."""


class Verdict(NamedTuple):
    """The accepted nodes, the root first, and the token that the target puts behind them."""

    path: list[int]
    token: int


def verify(
    logits: Logits,
    proposal: Proposal,
    tokens: Sequence[int],
    sampler: Sampler,
    rule: AnyRule = "traversal",
) -> Verdict:
    """Judge `proposal`, which follows `tokens`, by the target's rows [n + 1, V], the root's first.

    Nothing of it was drawn: the target chooses, and the tree is followed as long as it has the
    choice, so that the output is that of plain decoding, token for token. Otherwise drawn nodes are
    judged by `rule`, and the output has the target's distribution, unless a rule was asked for that
    is lossy by name. Raises EngineError for logits that are NaN or infinite.
    """
    if rule == "lossy:typical" or rule == "lossy:lenient":
        return Verdict(*follow(rule, logits, proposal, tokens, sampler))
    if not proposal.drawn:
        return _walk(logits, proposal, tokens, sampler)
    nodes = np.array([tokens[-1], *proposal.tokens])
    tree = Tree(nodes, np.array([-1, *proposal.parents]))
    laws = _Laws(logits, proposal, tokens, sampler)
    verdict = judge(rule, tree, laws, _Numbers(len(tokens) - 1, proposal, sampler))
    if verdict.next_token == INVALID:
        last = verdict.path[-1]
        sampler.law(logits[last], tokens, proposal.path(last))  # raises, as it does in _Laws
    return Verdict(verdict.path, verdict.next_token)


def _walk(logits: Logits, proposal: Proposal, tokens: Sequence[int], sampler: Sampler) -> Verdict:
    path, accepted = [0], list[int]()
    while True:
        node = path[-1]
        token, margin = sampler.choose(logits[node], tokens, accepted)
        if node >= len(path) and margin < LEAST_MARGIN:
            return Verdict(path[:-1], accepted[-1])  # its own token stands: a better row chose it
        for child in proposal.children(node):
            if proposal.tokens[child - 1] == token:
                path.append(child)
                accepted.append(token)
                break
        else:
            return Verdict(path, token)


@dataclass
class _Laws:
    """The laws of a proposal, the target's made when they are asked for."""

    logits: Logits
    proposal: Proposal
    tokens: Sequence[int]
    sampler: Sampler

    def target(self, node: int) -> Law:
        try:
            return self.sampler.law(self.logits[node], self.tokens, self.proposal.path(node))
        except RequestError:
            # All is forbidden behind this node: a reason to refuse the request only if it stands.
            return np.zeros(self.logits.shape[1], np.float32)

    def draft(self, child: int) -> Law:
        law = self.proposal.laws[child - 1]
        if law is None:
            law = np.zeros(self.logits.shape[1], np.float32)
            law[self.proposal.tokens[child - 1]] = 1.0
        return law


@dataclass(frozen=True)
class _Numbers:
    """The random numbers of the round whose root has the position `root`."""

    root: int
    proposal: Proposal
    sampler: Sampler

    def accept(self, node: int) -> int:
        return self.sampler.randomness.accept(self.root, node)

    def emit(self, node: int) -> int:
        return self.sampler.randomness.emit(self.root + self._depths[node] + 1)

    @cached_property
    def _depths(self) -> list[int]:
        return self.proposal.depths()
