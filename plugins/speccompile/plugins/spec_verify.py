"""What `SpecVerify` computes, in numpy: the oracle that every faster implementation must equal.

One sequence at a time; the operator does the same to each of its B. All randomness comes in, so a
verdict is a function of its arguments. `schema` says what they are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.laws import (
    GREEDY,
    Law,
    Sampling,
    accepts,
    argmax,
    draw,
    law,
    mass,
    without,
)
from speccompile.plugins.schema import INVALID, Rule

__all__ = ["Laws", "Numbers", "Tree", "TreeVerdict", "judge", "spec_verify"]

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
        return _walk(
            tree, given, lambda node: _drawn(law(logits[node], sampling), int(uniforms[node, 1]))
        )
    if draft_logits is None:
        raise ValueError(f"the rule {rule} needs the draft's logits")
    return judge(rule, tree, _OfRows(tree, logits, draft_logits, sampling), _OfArray(uniforms))


def _walk(tree: Tree, path: list[int], choose: Callable[[int], int | None]) -> TreeVerdict:
    """Follow the target's own choice for as long as the tree has it."""
    while True:
        token = choose(path[-1])
        following = [child for child in tree.children(path[-1]) if tree.tokens[child] == token]
        if token is None or not following:
            return TreeVerdict(path, INVALID if token is None else token)
        path.append(following[0])


class Laws(Protocol):
    """The distributions [V] that drawn nodes are judged by; None in place of one that is invalid.

    They may be fp32 or fp64: a rule computes in the type of the target's.
    """

    def target(self, node: int) -> Law | None:
        """Of the token behind a node."""
        ...

    def draft(self, child: int) -> Law | None:
        """The one that a child was drawn from, its siblings before it taken out."""
        ...


class Numbers(Protocol):
    """Uniform whole numbers below 2^53, each of which decides one thing."""

    def accept(self, node: int) -> int:
        """To accept a node by."""
        ...

    def emit(self, node: int) -> int:
        """To draw the token behind a node with."""
        ...


def judge(rule: Rule, tree: Tree, laws: Laws, numbers: Numbers) -> TreeVerdict:
    """Judge a tree whose nodes were drawn, by the rule "token" or "traversal"."""
    given = list(range(tree.given))
    return (_token if rule == "token" else _traversal)(tree, given, laws, numbers)


@dataclass
class _Node:
    """What is left of the target's law `p` at a node after rejected children.

    `weight` is the ratio of target's and draft's law along the path, at most 1 (traversal; 1 for
    the token rule).
    """

    p: Law
    weight: float = 1.0

    def reject(self, q: Law) -> None:
        """Take out what the law of a rejected child had a chance to propose."""
        number = self.p.dtype.type
        residual = np.maximum(number(self.weight) * self.p - q, number(0.0))
        total = int(mass(residual).sum())
        if total:
            left = float(total) / _ONE
            self.weight = left / (left + (1.0 - self.weight))
            self.p = residual * number(_ONE / float(total))
        elif self.weight < 1.0:
            self.weight = 0.0
        # With a weight of 1, no residual means p = q up to rounding: p stays the law to draw from.


@dataclass
class _OfRows:
    """The laws that rows of logits make, each when it is first asked for."""

    tree: Tree
    logits: NDArray[np.floating]
    draft_logits: NDArray[np.floating]
    sampling: Sampling
    _left: dict[int, list[Law]] = field(default_factory=dict[int, list["Law"]])

    def target(self, node: int) -> Law | None:
        return law(self.logits[node], self.sampling)

    def draft(self, child: int) -> Law | None:
        parent = int(self.tree.parents[child])
        if parent not in self._left:
            row = law(self.draft_logits[parent], self.sampling)
            if row is None:
                return None
            self._left[parent] = [row]
        siblings, left = self.tree.children(parent), self._left[parent]
        while len(left) <= siblings.index(child):
            left.append(without(left[-1], int(self.tree.tokens[siblings[len(left) - 1]])))
        return left[siblings.index(child)]


@dataclass(frozen=True)
class _OfArray:
    """The numbers of an array [N, 2]."""

    uniforms: NDArray[np.int64]

    def accept(self, node: int) -> int:
        return int(self.uniforms[node, 0])

    def emit(self, node: int) -> int:
        return int(self.uniforms[node, 1])


def _token(tree: Tree, path: list[int], laws: Laws, numbers: Numbers) -> TreeVerdict:
    """From the root down: the first accepted child is followed."""
    while True:
        p = laws.target(path[-1])
        if p is None:
            return TreeVerdict(path, INVALID)
        state = _Node(p)
        for child in tree.children(path[-1]):
            q, token = laws.draft(child), int(tree.tokens[child])
            if q is None:
                return TreeVerdict(path, INVALID)
            if accepts(numbers.accept(child), state.p[token], q[token]):
                path.append(child)
                break
            state.reject(q)
        else:
            return TreeVerdict(path, _emit(state.p, numbers.emit(path[-1])))


def _traversal(tree: Tree, path: list[int], laws: Laws, numbers: Numbers) -> TreeVerdict:
    """From the first leaf up: a path stands as a whole, or its leaf is taken away."""
    root = len(path) - 1
    waiting = {path[-1]: tree.children(path[-1])}  # children not yet taken away
    states: dict[int, _Node] = {}
    drawn_from: dict[int, Law] = {}
    while True:
        node = path[-1]
        if node not in states:
            p, q = laws.target(node), laws.draft(node) if len(path) - 1 > root else None
            if p is None or (q is None and len(path) - 1 > root):
                return TreeVerdict(path[: root + 1], INVALID)
            states[node] = _Node(p)
            if q is not None:
                drawn_from[node] = q
                states[node].weight = _weight(states[path[-2]], q, int(tree.tokens[node]))
        if waiting[node]:
            child = waiting[node][0]
            waiting[child] = tree.children(child)
            path.append(child)
        elif len(path) - 1 == root or accepts(numbers.accept(node), states[node].weight, 1.0):
            return TreeVerdict(path, _emit(states[node].p, numbers.emit(node)))
        else:
            path.pop()
            waiting[path[-1]].pop(0)
            states[path[-1]].reject(drawn_from[node])


def _weight(parent: _Node, q: Law, token: int) -> float:
    p, q_token = parent.weight * float(parent.p[token]), float(q[token])
    return min(1.0, p / q_token) if q_token else float(p > 0.0)


def _drawn(row: Law | None, number: int) -> int | None:
    return None if row is None else draw(row, number)


def _emit(row: Law, number: int) -> int:
    token = draw(row, number)
    return INVALID if token is None else token
