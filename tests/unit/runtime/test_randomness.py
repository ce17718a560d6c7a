"""That the numbers of several rounds keep the target's law, shown by enumeration.

A number stands for a uniform variable, and its value is the variable's name: what two rounds draw
with the same number, they draw with the same variable, of which the first has told something.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from unittest import mock

import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.plugins import spec_verify as oracle
from speccompile.plugins.laws import Law, mass
from speccompile.plugins.philox import uniform_bits
from speccompile.plugins.schema import Rule
from speccompile.plugins.spec_verify import Tree
from speccompile.runtime.sampling import Purpose, Randomness
from tests.unit.plugins.tree_enumeration import Context, Decider, distance

# Laws are fp32. Measured: 2e-8; the controls that must fail are off by 2e-3 and more.
EXACT = 1e-6
WRONG = 1e-3
ROUNDS = 2
LENGTH = 4  # of the texts whose law is looked at: two rounds say no more than some of them


class ByPosition(Randomness):
    """What a round draws for a node belongs to the node's position too."""

    def accept(self, root: int, node: int) -> int:
        return int(uniform_bits(self.seed, root + node, Purpose.ACCEPT))

    def draft(self, root: int, node: int) -> int:
        return int(uniform_bits(self.seed, root + node, Purpose.DRAFT))


class AcceptByPosition(ByPosition):
    """Likewise, but not to draft with."""

    draft = Randomness.draft


class DraftByPosition(ByPosition):
    """Likewise, but not to accept with."""

    accept = Randomness.accept


def test_no_number_serves_twice() -> None:
    numbers = Randomness(5)
    nodes = [(root, node) for root in range(20) for node in range(1, 9)]
    found = [*(numbers.accept(*each) for each in nodes), *(numbers.draft(*each) for each in nodes)]
    found += [numbers.emit(position) for position in range(20)]
    assert len({*found}) == len(found)
    assert found[0] == uniform_bits(5, 0, Purpose.ACCEPT, branch=1)
    assert found[-1] == uniform_bits(5, 19, Purpose.EMIT)


@pytest.mark.parametrize(("vocabulary", "proposals"), [(2, 3), (3, 2)])
def test_rounds_keep_the_target_s_law(vocabulary: int, proposals: int) -> None:
    assert error(Randomness(5), vocabulary, proposals) <= EXACT


@pytest.mark.parametrize("numbers", [ByPosition, AcceptByPosition, DraftByPosition])
def test_numbers_that_helped_to_reject_are_not_uniform_any_more(numbers: type[Randomness]) -> None:
    assert error(numbers(5), 2, 3) > WRONG


def test_token_by_token_none_is_asked_for_behind_a_rejection() -> None:
    assert error(ByPosition(5), 2, 3, "token") <= EXACT


def error(
    randomness: Randomness, vocabulary: int, proposals: int, rule: Rule = "traversal"
) -> float:
    """How far the law of what two rounds emit, and the target behind them, is from the target's."""
    target, draft = (laws(seed, vocabulary) for seed in (1, 2))
    found: dict[Context, float] = defaultdict(float)
    waiting: list[list[int]] = [[]]
    while waiting:
        decider = Decider(waiting.pop())
        text = emitted(Variables(decider), randomness, target, draft, proposals, rule)
        waiting += decider.untried
        for whole, rest in continued(target, text[:LENGTH]).items():
            found[whole] += decider.probability * rest
    return distance(found, continued(target, ()))


def laws(seed: int, vocabulary: int) -> NDArray[np.float32]:
    """Of the token behind each token: [V, V]."""
    return np.random.default_rng(seed).dirichlet(np.ones(vocabulary), vocabulary).astype(np.float32)


def emitted(
    variables: Variables,
    randomness: Randomness,
    target: NDArray[np.float32],
    draft: NDArray[np.float32],
    proposals: int,
    rule: Rule,
) -> Context:
    """What the rounds add to a sequence of one token."""
    tokens = [0]
    with mock.patch.multiple(oracle, accepts=variables.accepts, draw=variables.draw):
        for _ in range(ROUNDS):
            root, guessed = len(tokens) - 1, tokens[-1:]
            for node in range(1, proposals + 1):
                number = randomness.draft(root, node)
                guessed.append(variables.draw(draft[guessed[-1]], number))
            tree = Tree(np.array(guessed), np.arange(-1, proposals))
            chain = Chain(guessed, target, draft)
            verdict = oracle.judge(rule, tree, chain, Numbers(randomness, root))
            tokens += verdict.emitted(tree)
    return tuple(tokens[1:])


def continued(target: NDArray[np.float32], start: Context) -> dict[Context, float]:
    """The law of the texts that begin so, as the target goes on."""
    found = {start: 1.0}
    for _ in range(LENGTH - len(start)):
        found = {
            (*text, token): probability * float(each)
            for text, probability in found.items()
            for token, each in enumerate(target[text[-1] if text else 0])
        }
    return found


@dataclass
class Variables:
    """Uniform variables by their numbers: what is known of one is the interval that it lies in."""

    decider: Decider
    known: dict[int, tuple[float, float]] = field(default_factory=dict[int, tuple[float, float]])

    def accepts(self, number: int, p: float, q: float) -> bool:
        """In place of `laws.accepts`."""
        ratio = min(1.0, float(p) / float(q)) if q else float(p > 0.0)
        return self._piece(number, [0.0, ratio, 1.0]) == 0

    def draw(self, row: Law, number: int) -> int:
        """In place of `laws.draw`."""
        cumulated = np.cumsum(mass(row)).astype(np.float64)
        return self._piece(number, [0.0, *(cumulated / cumulated[-1]).tolist()])

    def _piece(self, number: int, edges: Sequence[float]) -> int:
        """Between which edges the variable lies: a decision as far as it is not known."""
        low, high = self.known.get(number, (0.0, 1.0))
        pieces = [(max(low, start), min(high, end)) for start, end in pairwise(edges)]
        chosen = self.decider.choose(
            [max(end - start, 0.0) / (high - low) for start, end in pieces]
        )
        self.known[number] = pieces[chosen]
        return chosen


@dataclass(frozen=True)
class Chain:
    """See `Laws`."""

    tokens: Sequence[int]
    p: NDArray[np.float32]
    q: NDArray[np.float32]

    def target(self, node: int) -> Law:
        row: Law = self.p[self.tokens[node]]
        return row

    def draft(self, child: int) -> Law:
        row: Law = self.q[self.tokens[child - 1]]
        return row


@dataclass(frozen=True)
class Numbers:
    """See `Numbers`: those of a chain behind a root at this position."""

    randomness: Randomness
    root: int

    def accept(self, node: int) -> int:
        return self.randomness.accept(self.root, node)

    def emit(self, node: int) -> int:
        return self.randomness.emit(self.root + node + 1)
