"""Decode prompts, and write down what became of every token that was proposed.

Every round proposes a path of the same depth, with further guesses beside its first tokens: what
is learned must not depend on what a controller already believes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.control.chains import ChainController
from speccompile.runtime.control.controller import Outcome
from speccompile.runtime.control.samples import RoundLog, Sample
from speccompile.runtime.control.survival import trial
from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.request import Request
from speccompile.runtime.session import Session

__all__ = ["DEPTH", "Example", "Survey", "survey"]

DEPTH = 8
"""Of every proposal: as deep as a build looks."""

_BRANCHED = 4  # levels whose nodes have several children; each is a row of the target
_CHILDREN = 4


class Example(NamedTuple):
    """A proposed token of a prompt's first paths. `label` is what a predictor should have said:
    1 - TV(p, q) where the token was drawn from a law q that the target's p can be held against,
    otherwise whether it stood."""

    prompt: int
    sample: Sample
    label: float


class Survey:
    """A controller that collects examples and counts."""

    def __init__(self, *, broad: bool = True) -> None:
        """Unless it is `broad`, nothing is proposed beside a path."""
        self._log = RoundLog(_Deep(_BRANCHED if broad else 0))
        self._prompt = -1
        self.examples: list[Example] = []
        self._tested = np.zeros(DEPTH, np.int64)
        self._stood = np.zeros(DEPTH, np.int64)
        self._heard = np.zeros(_CHILDREN - 1, np.int64)
        self._rescued = np.zeros(_CHILDREN - 1, np.int64)

    @property
    def prompts(self) -> int:
        """Prompts begun."""
        return self._prompt + 1

    @property
    def acceptance(self) -> tuple[float, ...]:
        """By position: how often a token stood where those before it did."""
        tested = self._tested[self._tested > 0]
        return tuple((self._stood[: len(tested)] / tested).tolist())

    @property
    def tested(self) -> tuple[int, ...]:
        """By position: tokens whose predecessors all stood."""
        return tuple(self._tested[self._tested > 0].tolist())

    @property
    def rescues(self) -> tuple[float, ...]:
        """Of the second, third, ... guess: how often it stood where the first fell."""
        heard = self._heard[self._heard > 0]
        return tuple((self._rescued[: len(heard)] / heard).tolist())

    def profile(self) -> list[list[float]]:
        """By depth: how often the first, second, ... child of an accepted node is the next one.

        The guesses beside the first are taken to be as good at every depth.
        """
        return [
            [stands, *((1.0 - stands) * share for share in self.rescues)]
            for stands in self.acceptance
        ]

    def start(self) -> None:
        self._prompt += 1
        self._log.start()

    def effort(self, room: int) -> Effort | None:
        return self._log.effort(room)

    def learn(self, outcome: Outcome) -> None:
        known = len(self._log.samples)
        self._log.learn(outcome)
        labels = _overlaps(outcome)
        for sample in self._log.samples[known:]:
            label = labels.get(sample.position, float(sample.accepted))
            self.examples.append(Example(self._prompt, sample, label))
        self._count(outcome)

    def _count(self, outcome: Outcome) -> None:
        tried = trial(outcome)
        self._stood[: tried.stood] += 1
        self._tested[: tried.stood + tried.fell] += 1
        if not tried.fell:
            return
        children = outcome.proposal.children(outcome.path[tried.stood])
        taken = outcome.path[tried.stood + 1 :][:1]
        for rank, child in enumerate(children[1:_CHILDREN]):
            self._heard[rank] += 1
            self._rescued[rank] += child in taken


def survey(
    session: Session,
    prompts: Sequence[Sequence[int]],
    request: Request,
    progress: Callable[[int, int], None],
) -> Survey:
    """Continue every prompt; `progress` is told the prompt's number, and how many tokens it has.

    The prompts draw different random numbers. Where the session proposes no trees, neither is
    anything proposed beside the paths.
    """
    controller = Survey(broad=not isinstance(session.controller, ChainController))
    session.controller = controller
    for number, prompt in enumerate(prompts):
        sampling = replace(request.sampling, sample=number)
        generated = session.generate(prompt, replace(request, sampling=sampling))
        progress(number, 0)
        for count, _ in enumerate(generated, start=1):
            progress(number, count)
    return controller


@dataclass(frozen=True)
class _Deep:
    """As deep as a survey looks, and broad in the first `branched` levels."""

    branched: int

    def start(self) -> None:
        """Nothing to begin with."""

    def effort(self, room: int) -> Effort | None:
        depth = min(DEPTH, room)
        branches = dict.fromkeys(range(min(depth, self.branched)), _CHILDREN)
        nodes = depth + len(branches) * (_CHILDREN - 1)
        return Effort(depth, nodes, branches=branches) if depth > 0 else None

    def learn(self, outcome: Outcome) -> None:
        """Nothing to learn."""


def _overlaps(outcome: Outcome) -> dict[int, float]:
    """By position on the first path, of tokens that were drawn: 1 - TV(p, q)."""
    overlaps: dict[int, float] = {}
    proposal, rows, sampler = outcome.proposal, outcome.logits, outcome.sampler
    if rows is None or sampler is None or not proposal.drawn:
        return overlaps
    stood, parent = trial(outcome).stood, 0
    for position in range(stood + 1):
        children = proposal.children(parent)
        drawn = proposal.laws[children[0] - 1] if children else None
        if drawn is None:
            break
        law = sampler.law(rows[parent], outcome.tokens, proposal.path(parent))
        overlaps[position] = _overlap(law, drawn)
        parent = children[0]
    return overlaps


def _overlap(left: NDArray[np.float32], right: NDArray[np.float32]) -> float:
    return float(np.minimum(left, right, dtype=np.float64).sum())
