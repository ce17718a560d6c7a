"""That the rules keep the law of logits, in production's fp32, and that it would show if not.

`tests/exact` has the same of the runtime, in fp64 and to the last digit.
"""

from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.plugins import spec_verify as oracle
from speccompile.plugins.laws import Law
from speccompile.plugins.schema import Rule
from speccompile.plugins.spec_verify import Tree, TreeVerdict
from tests.trees import Logits
from tests.unit.plugins.tree_enumeration import (
    Context,
    Decider,
    Judge,
    Model,
    by_rule,
    chain_law,
    distance,
    round_law,
)

# Laws are fp32: each of a few of their products and quotients is within 1e-7 of the exact one.
# Measured: 2e-8. The controls that must fail are off by 1e-2 and more.
EXACT = 1e-6
WRONG = 1e-2

DRAWN: tuple[Rule, ...] = ("token", "traversal")
"""Rules for proposals that were drawn from the draft's law."""

VOCABULARY = 3
CHAINS = {"chain of 1": (-1, 0), "chain of 3": (-1, 0, 1, 2)}
TREES = {
    "two of two": (-1, 0, 0, 1, 1, 2, 2),
    "three, of which the second has two": (-1, 0, 0, 0, 2, 2),
    "padding between": (-1, 0, -1, 0, 3),
}
SHAPES = CHAINS | TREES


def model(seed: int, *, zeros: float = 0.0, one_hot: bool = False) -> Model:
    """A row of its own for every context; a share `zeros` of them excludes a token."""
    rng = np.random.default_rng(seed)
    rows: dict[Context, NDArray[np.float32]] = {}
    for length in range(5):
        for context in product(range(VOCABULARY), repeat=length):
            row = rng.normal(size=VOCABULARY).astype(np.float32)
            if rng.random() < zeros:
                row[rng.integers(VOCABULARY)] = -np.inf
            if one_hot:
                row[np.arange(VOCABULARY) != row.argmax()] = -np.inf
            rows[context] = row
    return rows


def everywhere(probabilities: Sequence[float]) -> Model:
    with np.errstate(divide="ignore"):
        row = np.log(np.array(probabilities, np.float32))
    vocabulary = range(len(row))
    return {context: row for length in range(5) for context in product(vocabulary, repeat=length)}


PAIRS = {
    "random": (model(1), model(2)),
    "zeros in the target": (model(3, zeros=0.7), model(4)),
    "zeros in the draft": (model(5), model(6, zeros=0.7)),
    "zeros in both": (model(7, zeros=0.7), model(8, zeros=0.7)),
    "one-hot draft": (model(9), model(10, one_hot=True)),
    "one-hot target": (model(11, one_hot=True), model(12)),
    "disjoint": (everywhere([0.0, 0.3, 0.7]), everywhere([1.0, 0.0, 0.0])),
    "equal": (model(13), model(13)),
}


@pytest.mark.parametrize("rule", DRAWN)
@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("shape", SHAPES)
def test_the_law_of_the_target_is_kept(shape: str, pair: str, rule: Rule) -> None:
    assert _error(by_rule(rule), shape, pair) <= EXACT


@pytest.mark.parametrize("shape", SHAPES)
def test_a_walk_keeps_it_whatever_is_proposed(shape: str) -> None:
    assert _error(by_rule("walk"), shape, "zeros in both") <= EXACT


@pytest.mark.parametrize("rule", DRAWN)
@pytest.mark.parametrize("shape", ["chain of 3", "two of two"])
def test_a_draft_that_is_declared_wrongly_is_found_out(shape: str, rule: Rule) -> None:
    other = model(14)
    target, draft = PAIRS["random"]
    length = _depth(shape) + 1
    found = round_law(by_rule(rule), target, draft, SHAPES[shape], length, declared=other)
    assert distance(found, chain_law(target, (), length)) > WRONG


@pytest.mark.parametrize("rule", DRAWN)
@pytest.mark.parametrize("shape", ["chain of 1", "two of two"])
def test_drawing_from_the_target_after_a_rejection_is_found_out(
    shape: str, rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    def keep(node: object, q: Law) -> None:
        """Reject, and forget it."""

    monkeypatch.setattr(oracle, "_Node", type("_Node", (oracle._Node,), {"reject": keep}))  # pyright: ignore[reportPrivateUsage]
    assert _error(by_rule(rule), shape, "random") > WRONG


@pytest.mark.parametrize("rule", DRAWN)
def test_siblings_judged_as_if_they_had_been_replaced_are_found_out(
    rule: Rule, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaced(law: Law, token: int) -> Law:
        return law

    monkeypatch.setattr(oracle, "without", replaced)
    assert _error(by_rule(rule), "chain of 3", "random") <= EXACT
    assert _error(by_rule(rule), "two of two", "random") > WRONG


@pytest.mark.parametrize("rule", DRAWN)
def test_the_best_k_are_no_sample_of_the_draft(rule: Rule) -> None:
    assert _error_of_best(by_rule(rule)) > WRONG


def test_the_best_k_may_be_walked() -> None:
    assert _error_of_best(by_rule("walk")) <= EXACT


def test_accepting_whatever_is_proposed_is_found_out() -> None:
    def credulous(logits: Logits, tree: Tree, draft_logits: Logits) -> TreeVerdict:
        verdict = by_rule("token")(logits, tree, draft_logits)
        first = tree.children(0)
        return TreeVerdict([0, first[0]], verdict.next_token) if first else verdict

    assert _error(credulous, "chain of 1", "random") > WRONG


def _error(judge: Judge, shape: str, pair: str) -> float:
    target, draft = PAIRS[pair]
    length = _depth(shape) + 1
    found = round_law(judge, target, draft, SHAPES[shape], length)
    return distance(found, chain_law(target, (), length))


def _error_of_best(judge: Judge) -> float:
    """Of proposals that are the draft's best two at the root, declared as if drawn."""

    def best(decider: Decider, draft: Model, parents: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.array([-1, *np.argsort(-draft[()])[:2]])

    target, draft = PAIRS["random"]
    found = round_law(judge, target, draft, (-1, 0, 0), 2, propose=best)
    return distance(found, chain_law(target, (), 2))


def _depth(shape: str) -> int:
    return {"chain of 1": 1, "chain of 3": 3}.get(shape, 2)
