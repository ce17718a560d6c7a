"""What `SpecVerify` computes, in numpy: the oracle that every faster implementation must equal.

One sequence at a time; the operator does the same to each of its B. All randomness comes in, so a
verdict is a function of its arguments. `schema` says what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.laws import GREEDY, Law, Sampling, accepts, argmax, draw, law, mass
from speccompile.plugins.schema import INVALID, Rule

__all__ = ["Tree", "TreeVerdict", "spec_verify"]

_ONE = float(2**52)


@dataclass(frozen=True)
class Tree:
    """Tokens and parents [N] of a proposal, of which the first `given` are not in question."""

    tokens: NDArray[np.int64]
    parents: NDArray[np.int64]
    given: int = 1

    def children(self, node: int) -> list[int]:
        """In the order in which they were drawn; given nodes have no others."""
        found = np.flatnonzero(self.parents == node)
        return [int(child) for child in found if child >= self.given]


class TreeVerdict(NamedTuple):
    """The accepted nodes from the root on, and the token that the target puts behind them."""

    path: list[int]
    next_token: int

    def emitted(self, tree: Tree) -> list[int]:
        """What the round adds to the sequence."""
        path = self.path[tree.given :]
        return [*(int(tree.tokens[node]) for node in path), self.next_token]


def spec_verify(
    rule: Rule,
    logits: NDArray[np.floating],
    tree: Tree,
    uniforms: NDArray[np.int64] | None = None,
    sampling: Sampling = GREEDY,
    draft_logits: NDArray[np.floating] | None = None,
) -> TreeVerdict:
    """Judge `tree` by the target's `logits` [N, V] under `rule`; what else, depends on the rule.

    Where a row that has to be looked at is invalid, one of the draft's too, the next token is
    INVALID, and no node counts as accepted that was not before.
    """
    given = list(range(tree.given))
    if rule == "greedy":
        return _walk(tree, given, lambda node: argmax(logits[node]))
    if uniforms is None:
        raise ValueError(f"the rule {rule} needs uniform numbers")
    if rule == "walk":
        return _walk(tree, given, lambda node: _drawn(law(logits[node], sampling), uniforms[node]))
    if draft_logits is None:
        raise ValueError(f"the rule {rule} needs the draft's logits")
    judge = _token if rule == "token" else _traversal
    return judge(tree, given, _Laws(logits, draft_logits, sampling), uniforms)


def _walk(tree: Tree, path: list[int], choose: Callable[[int], int | None]) -> TreeVerdict:
    """Follow the target's own choice for as long as the tree has it."""
    while True:
        token = choose(path[-1])
        following = [child for child in tree.children(path[-1]) if tree.tokens[child] == token]
        if token is None or not following:
            return TreeVerdict(path, INVALID if token is None else token)
        path.append(following[0])


@dataclass
class _Node:
    """What is left of the target's law `p` and draft's law `q` at a node after rejected children.

    `weight` is the ratio of both along the path, at most 1 (traversal; 1 for the token rule).
    """

    p: Law
    q: Law
    weight: float = 1.0

    def reject(self, token: int) -> None:
        """Take out of `p` what `q` had a chance to propose, and out of `q` its proposal."""
        residual = np.maximum(np.float32(self.weight) * self.p - self.q, np.float32(0.0))
        total = int(mass(residual).sum())
        if total:
            left = float(total) / _ONE
            self.weight = left / (left + (1.0 - self.weight))
            self.p = residual * np.float32(_ONE / float(total))
        elif self.weight < 1.0:
            self.weight = 0.0
        # With a weight of 1, no residual means p = q up to rounding: p stays the law to draw from.
        self.q = self.q.copy()
        self.q[token] = 0.0
        if total := int(mass(self.q).sum()):
            self.q = self.q * np.float32(_ONE / float(total))


class _Laws:
    """The state of every node, made when it is first asked for; None for one without a law."""

    def __init__(
        self,
        logits: NDArray[np.floating],
        draft_logits: NDArray[np.floating],
        sampling: Sampling,
    ) -> None:
        self._rows = logits, draft_logits, sampling

    def __call__(self, node: int, *, inner: bool) -> _Node | None:
        """Of a node with children (`inner`) the draft's law too, which has to be valid."""
        logits, draft_logits, sampling = self._rows
        p = law(logits[node], sampling)
        q = law(draft_logits[node], sampling) if inner else p
        return None if p is None or q is None else _Node(p, q)


def _token(tree: Tree, path: list[int], laws: _Laws, uniforms: NDArray[np.int64]) -> TreeVerdict:
    """From the root down: the first accepted child is followed."""
    while True:
        children = tree.children(path[-1])
        state = laws(path[-1], inner=bool(children))
        if state is None:
            return TreeVerdict(path, INVALID)
        for child in children:
            token = int(tree.tokens[child])
            if accepts(uniforms[child, 0], state.p[token], state.q[token]):
                path.append(child)
                break
            state.reject(token)
        else:
            return TreeVerdict(path, _emit(state.p, uniforms[path[-1]]))


def _traversal(
    tree: Tree, path: list[int], laws: _Laws, uniforms: NDArray[np.int64]
) -> TreeVerdict:
    """From the first leaf up: a path stands as a whole, or its leaf is taken away."""
    root = len(path) - 1
    waiting = {path[-1]: tree.children(path[-1])}  # children not yet taken away
    states: dict[int, _Node] = {}
    while True:
        node = path[-1]
        if node not in states:
            state = laws(node, inner=bool(waiting[node]))
            if state is None:
                return TreeVerdict(path[: root + 1], INVALID)
            if len(path) - 1 > root:
                state.weight = _weight(states[path[-2]], int(tree.tokens[node]))
            states[node] = state
        if waiting[node]:
            child = waiting[node][0]
            waiting[child] = tree.children(child)
            path.append(child)
        elif len(path) - 1 == root or accepts(uniforms[node, 0], states[node].weight, 1.0):
            return TreeVerdict(path, _emit(states[node].p, uniforms[node]))
        else:
            path.pop()
            waiting[path[-1]].pop(0)
            states[path[-1]].reject(int(tree.tokens[node]))


def _weight(parent: _Node, token: int) -> float:
    p, q = parent.weight * float(parent.p[token]), float(parent.q[token])
    return min(1.0, p / q) if q else float(p > 0.0)


def _drawn(row: Law | None, uniforms: NDArray[np.int64]) -> int | None:
    return None if row is None else draw(row, int(uniforms[1]))


def _emit(row: Law, uniforms: NDArray[np.int64]) -> int:
    token = draw(row, int(uniforms[1]))
    return INVALID if token is None else token
