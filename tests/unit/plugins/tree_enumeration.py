"""The exact law of a rule for trees: every outcome of every decision, with its probability.

The oracle decides in two places, `accepts` and `draw`. Here both are replaced by a decider that
takes one branch and notes the others, so that all of them are followed in the end. Proposals are
enumerated likewise: the children of a node are drawn from the draft's law without replacement.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from unittest import mock

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins import spec_verify as oracle
from speccompile.plugins.laws import Law, Sampling, law, mass
from speccompile.plugins.schema import Rule
from speccompile.plugins.spec_verify import Tree, TreeVerdict
from speccompile.runtime.proof.enumeration import Decider

__all__ = [
    "SAMPLING",
    "Context",
    "Decider",
    "Judge",
    "Model",
    "Propose",
    "by_rule",
    "chain_law",
    "distance",
    "drawn_without_replacement",
    "round_law",
]

SAMPLING = Sampling(temperature=1.0)
Context = tuple[int, ...]
Model = Mapping[Context, NDArray[np.float32]]
"""The logits of the next token after each short context, the empty one included."""

Judge = Callable[[NDArray[np.float32], Tree, NDArray[np.float32]], TreeVerdict]
"""Of target logits, a tree and the draft's logits."""
Propose = Callable[[Decider, Model, NDArray[np.int64]], NDArray[np.int64]]
"""Draws the tokens of a tree of these parents; the root's, and those of missing nodes, are -1."""


def by_rule(rule: Rule) -> Judge:
    """The oracle's judgement; its uniform numbers are not read."""

    def judge(
        logits: NDArray[np.float32], tree: Tree, draft_logits: NDArray[np.float32]
    ) -> TreeVerdict:
        unread = np.zeros((len(tree.tokens), 2), np.int64)
        return oracle.spec_verify(rule, logits, tree, unread, SAMPLING, draft_logits)

    return judge


def drawn_without_replacement(
    decider: Decider, draft: Model, parents: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Children in the order of their index. A node whose parent's law is used up is missing."""
    tokens = np.full(len(parents), -1, np.int64)
    left: dict[int, NDArray[np.float64]] = {}
    for node in range(1, len(parents)):
        parent = int(parents[node])
        if parent < 0 or (parent and tokens[parent] < 0):
            continue
        if parent not in left:
            row = law(draft[_context(parent, tokens, parents)], SAMPLING)
            assert row is not None
            left[parent] = _exact(row)
        remaining = left[parent]
        if remaining.any():
            tokens[node] = decider.choose((remaining / remaining.sum()).tolist())
            remaining[tokens[node]] = 0.0
    return tokens


def round_law(
    judge: Judge,
    target: Model,
    draft: Model,
    parents: Sequence[int],
    length: int,
    *,
    propose: Propose = drawn_without_replacement,
    declared: Model | None = None,
) -> dict[Context, float]:
    """The law of the first `length` tokens: a round, then the target alone.

    `declared` are the draft's logits that the judge is told of, if not those it draws from.
    """
    found: dict[Context, float] = defaultdict(float)
    for tokens, verdict, probability in _rounds(
        judge, target, draft, declared or draft, np.array(parents, np.int64), propose
    ):
        emitted = (*(int(tokens[node]) for node in verdict.path[1:]), verdict.next_token)
        for context, rest in chain_law(target, emitted[:length], length).items():
            found[context] += probability * rest
    return found


def chain_law(model: Model, start: Context, length: int) -> dict[Context, float]:
    """The law of the `length` tokens that begin with `start` and go on as `model` draws them."""
    found = {start: 1.0}
    while len(next(iter(found))) < length:
        rows = {context: law(model[context], SAMPLING) for context in found}
        found = {
            (*context, token): probability * float(each)
            for context, probability in found.items()
            if (row := rows[context]) is not None
            for token, each in enumerate(_exact(row))
        }
    return found


def distance(left: Mapping[Context, float], right: Mapping[Context, float]) -> float:
    """The largest difference of a probability."""
    return max(abs(left.get(key, 0.0) - right.get(key, 0.0)) for key in {*left, *right})


def _rounds(
    judge: Judge,
    target: Model,
    draft: Model,
    declared: Model,
    parents: NDArray[np.int64],
    propose: Propose,
) -> Iterator[tuple[NDArray[np.int64], TreeVerdict, float]]:
    def one_round(decider: Decider) -> tuple[NDArray[np.int64], TreeVerdict]:
        tokens = propose(decider, draft, parents)
        present = np.where(tokens < 0, -1, parents)
        contexts = [_context(node, tokens, present) for node in range(len(present))]
        logits, draft_logits = (
            np.stack([model[context] for context in contexts]) for model in (target, declared)
        )
        with mock.patch.multiple(oracle, accepts=decider.accepts, draw=decider.draw):
            return tokens, judge(logits, Tree(tokens, present), draft_logits)

    waiting: list[list[int]] = [[]]
    while waiting:
        decider = Decider(waiting.pop())
        tokens, verdict = one_round(decider)
        waiting += decider.untried
        yield tokens, verdict, decider.probability


def _context(node: int, tokens: NDArray[np.int64], parents: NDArray[np.int64]) -> Context:
    context: Context = ()
    while node > 0 and tokens[node] >= 0:
        context = (int(tokens[node]), *context)
        node = int(parents[node])
    return context


def _exact(row: Law) -> NDArray[np.float64]:
    """A law's masses, which it draws by, as probabilities."""
    whole = mass(row).astype(np.float64)
    exact: NDArray[np.float64] = whole / whole.sum()
    return exact
