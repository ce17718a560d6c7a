"""Worlds to control in: tables of costs and processes of acceptance, without models and clocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from speccompile.runtime.control.controller import Controller, FixedController, Outcome
from speccompile.runtime.costmodel import step_ms
from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.signals import Signals

__all__ = [
    "CHEAP",
    "COSTLY",
    "SMOL",
    "Machine",
    "Run",
    "World",
    "best_static",
    "decode",
    "plain",
    "round_of",
    "signals_of",
    "steady",
    "switching",
]

Acceptance = Callable[[int], float]
"""The probability that the draft knows a token, by its number in the text."""


@dataclass(frozen=True)
class Machine:
    """Milliseconds by rows, of a target's step with everything around it and of a draft's."""

    target: Mapping[int, float]
    draft: Mapping[int, float]

    def drafting(self, depth: int) -> float:
        return depth * step_ms(self.draft, 1) / 1e3

    def step(self, rows: int) -> float:
        return step_ms(self.target, rows) / 1e3


SMOL = Machine({1: 21.9, 2: 21.9, 3: 23.4, 5: 26.2, 9: 32.1, 16: 37.6}, {1: 10.25})
"""SmolLM2-135M with its own INT8 weights as a draft, as a build measured it."""
CHEAP = Machine({1: 8.0, 8: 8.3, 16: 8.8, 32: 10.0}, {1: 0.4})
"""As of a GPU: rows are nearly free."""
COSTLY = Machine({1: 20.0, 2: 30.0, 4: 50.0, 8: 90.0, 16: 170.0}, {1: 4.0})
"""Rows cost half a step each, as where a matrix product is bound by arithmetic."""


@dataclass(frozen=True)
class World:
    """A machine and a text. Which tokens the draft knows is the text's: whoever decodes it.

    With `sharpness` above 0 the draft's probability of a token tells whether it knows it; `second`
    is the probability that it has a second guess where its first is wrong.
    """

    machine: Machine
    acceptance: Acceptance
    sharpness: float = 0.0
    second: float = 0.0
    seed: int = 0


@dataclass
class Run:
    """How a text was decoded."""

    seconds: float = 0.0
    depths: list[int] = field(default_factory=list[int])


_DEPTHS = (0, 1, 2, 3, 4, 5, 6, 8, 10, 12, 15)


class _Text(NamedTuple):
    told: list[float]
    known: list[bool]
    second: list[bool]


def decode(world: World, controller: Controller, tokens: int, *, requests: int = 1) -> Run:
    """Decode so many tokens in each of some requests, which are one text."""
    text, run, again = _text(world, tokens * requests), Run(), 0
    for request in range(requests):
        controller.start()
        position, end = request * tokens, (request + 1) * tokens
        while position < end:
            room = end - position - 1
            effort = controller.effort(room) if room else None
            assert effort is None or 0 < effort.depth <= room
            outcome = _round(world.machine, text, position, effort, again)
            again = int(outcome.path[-1] > outcome.accepted)  # A second guess is out of order.
            controller.learn(outcome)
            run.depths.append(max(outcome.proposal.depths()))
            run.seconds += outcome.seconds
            position += outcome.accepted + 1
    return run


def plain(machine: Machine, tokens: int) -> float:
    """Seconds of plain decoding."""
    return tokens * machine.step(1)


def best_static(world: World, tokens: int) -> float:
    """Seconds of the best depth that never changes, known only afterwards."""
    return min(decode(world, FixedController(depth), tokens).seconds for depth in _DEPTHS)


def steady(acceptance: float) -> Acceptance:
    return lambda position: acceptance


def switching(block: int, easy: float = 0.95, hard: float = 0.2) -> Acceptance:
    return lambda position: hard if position // block % 2 else easy


def round_of(
    proposal: Proposal, path: list[int], *, draft: float = 0.0, seconds: float = 1.0
) -> Outcome:
    """A round of which only what became of the proposal, and its seconds, matter."""
    rows = 1 + len(proposal.tokens)
    row = np.zeros(4, np.float32)
    return Outcome(proposal, path, 0, row, rows, draft, seconds - draft, seconds)


def signals_of(probability: float) -> Signals:
    """Those of a token that the draft gives this probability."""
    return Signals(np.log(np.array([probability, 1.0 - probability], np.float32)), 0)


def _text(world: World, tokens: int) -> _Text:
    rng = np.random.default_rng(world.seed)
    luck = rng.random((tokens, 3))  # row by row: a longer text begins as a shorter one
    odds = [float(np.log(p / (1 - p))) for p in map(_inside, map(world.acceptance, range(tokens)))]
    blur = np.log(luck[:, 0] / (1 - luck[:, 0]))
    confidence = 1 / (1 + np.exp(-np.array(odds) - world.sharpness * blur))
    known = luck[:, 1] < confidence
    told = confidence if world.sharpness else np.full(tokens, 0.5)
    second = luck[:, 2] < world.second
    return _Text(told.tolist(), known.tolist(), second.tolist())


def _inside(probability: float) -> float:
    return min(max(probability, 1e-9), 1 - 1e-9)


def _round(
    machine: Machine, text: _Text, position: int, effort: Effort | None, again: int
) -> Outcome:
    """A token is proposed, the controller is told of it, and all are judged at the end."""
    proposal, depth = Proposal(), 0
    while effort and depth < effort.depth:
        proposal.add(0, depth)
        told = text.told[position + depth]
        depth += 1
        if not effort.go_on(signals_of(told)):
            break
    path = [0]
    while len(path) <= depth and text.known[position + len(path) - 1]:
        path.append(len(path))
    fell = len(path) - 1
    for level in range(depth):
        if effort and effort.branches.get(level, 1) > 1:
            node = proposal.add(1, level)
            if level == fell and text.second[position + level]:
                path.append(node)
    rows = again + 1 + len(proposal.tokens)
    draft, target = machine.drafting(depth), machine.step(rows)
    row = np.zeros(4, np.float32)
    return Outcome(proposal, path, 0, row, rows, draft, target, draft + target)
