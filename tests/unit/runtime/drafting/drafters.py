"""Drafters for tests, and the exact law of what rounds of a drafter emit.

Draws and acceptances are followed into every branch: `Decider` of the trees' enumeration.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.laws import law, mass
from speccompile.runtime.drafting.draft import Draft, Effort
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.metered import Work
from speccompile.runtime.request import Rule
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.verify import verify
from tests.unit.plugins.tree_enumeration import Decider
from tests.unit.runtime.tables import Table

__all__ = ["GREEDY", "PROMPT", "Scripted", "emitted_law", "target_law", "within"]

GREEDY = Sampler(Sampling())
PROMPT = [3, 1]
Emitted = tuple[int, ...]


class Scripted:
    """Proposes what a function of the text says, as a chain."""

    def __init__(
        self, script: Callable[[Sequence[int]], Sequence[int]], name: str = "scripted"
    ) -> None:
        self._script, self.name = script, name
        self.work = Work()
        self.asked: list[Effort] = []
        self.started: list[list[int]] = []

    def start(self, prompt: Sequence[int]) -> None:
        self.started.append(list(prompt))

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        self.asked.append(effort)
        return Proposal.chain(self._script(tokens)[: effort.depth])


def within(proposal: Proposal, effort: Effort) -> bool:
    """Whether a proposal is a tree of distinct nodes that an effort allows."""
    nodes = len(proposal.tokens)
    paths = [tuple(proposal.path(node)) for node in range(1, nodes + 1)]
    return (
        nodes <= effort.nodes
        and max(proposal.depths()) <= effort.depth
        and all(0 <= parent <= index for index, parent in enumerate(proposal.parents))
        and len(set(paths)) == nodes
        and (nodes > 0 or not proposal.parents)
    )


def emitted_law(
    table: Table,
    make: Callable[[], Draft],
    effort: Effort,
    sampling: Sampling,
    count: int,
    rule: Rule = "traversal",
) -> dict[Emitted, float]:
    """The law of `count` tokens behind the prompt, in rounds of a new drafter each time."""
    found: dict[Emitted, float] = defaultdict(float)
    waiting: list[list[int]] = [[]]
    while waiting:
        decider = Decider(waiting.pop())
        sampler, tokens = Sampler(sampling), [*PROMPT]
        drafter = make()
        drafter.start(tokens[:-1])
        with (
            mock.patch.multiple(
                "speccompile.plugins.spec_verify", accepts=decider.accepts, draw=decider.draw
            ),
            mock.patch("speccompile.runtime.sampler.draw", decider.draw),
        ):
            while len(tokens) < len(PROMPT) + count:
                proposal = drafter.propose(tokens, effort, sampler)
                rows = _rows(table, tokens, proposal)
                path, token = verify(rows, proposal, tokens, sampler, rule)
                tokens += [*(proposal.tokens[node - 1] for node in path[1:]), token]
        waiting += decider.untried
        found[tuple(tokens[len(PROMPT) : len(PROMPT) + count])] += decider.probability
    return found


def target_law(table: Table, sampling: Sampling, count: int) -> dict[Emitted, float]:
    """The law of the target's own tokens."""
    found: dict[Emitted, float] = {(): 1.0}
    for _ in range(count):
        found = {
            (*emitted, token): probability * each
            for emitted, probability in found.items()
            for token, each in enumerate(_exact(table, sampling, [*PROMPT, *emitted]))
            if each > 0.0
        }
    return found


def _exact(table: Table, sampling: Sampling, tokens: Sequence[int]) -> list[float]:
    row = law(table[tokens[-2], tokens[-1]], sampling.filters)
    assert row is not None
    whole = mass(row)
    return [float(each) / float(whole.sum()) for each in whole]


def _rows(table: Table, tokens: Sequence[int], proposal: Proposal) -> NDArray[np.float32]:
    texts = [[*tokens, *proposal.path(node)] for node in range(len(proposal.tokens) + 1)]
    return np.stack([table[text[-2], text[-1]] for text in texts])
