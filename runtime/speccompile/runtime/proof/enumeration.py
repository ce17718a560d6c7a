"""Follow production code into every decision that it takes, each with its exact probability.

All that the runtime decides at random, it decides in `laws.draw` and `laws.accepts`, by numbers of
`Randomness`. Here these decide nothing: each outcome that has a chance is taken in one of the runs.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins import laws, spec_verify
from speccompile.plugins.laws import Law, mass
from speccompile.runtime import sampler, sampling
from speccompile.runtime.proof.models import exact_law

__all__ = ["Decider", "Decisions", "SpentTwiceError", "deciding"]

T = TypeVar("T", bound=Hashable)


class SpentTwiceError(AssertionError):
    """A random number decided two things, which are not independent then."""


@dataclass
class Decider:
    """Takes the branches of `prefix`, then always the first; `untried` leads to the others."""

    prefix: list[int]
    probability: float = 1.0
    untried: list[list[int]] = field(default_factory=list[list[int]])
    _taken: int = 0

    def choose(self, probabilities: Sequence[float]) -> int:
        """An index; those of probability 0 are never taken."""
        if self._taken < len(self.prefix):
            index = self.prefix[self._taken]
        else:
            index, *others = [each for each, value in enumerate(probabilities) if value > 0.0]
            self.untried += [[*self.prefix, other] for other in others]
            self.prefix = [*self.prefix, index]
        self._taken += 1
        self.probability *= probabilities[index]
        return index

    def accepts(self, uniform: int, p: float, q: float) -> bool:
        """In place of `laws.accepts`."""
        accepted = min(1.0, float(p) / float(q)) if q else float(p > 0.0)
        return not self.choose([accepted, 1.0 - accepted])

    def draw(self, row: Law, uniform: int) -> int:
        """In place of `laws.draw`."""
        return self.choose(_exact(row).tolist())


@dataclass
class Decisions:
    """The decisions of one run after the other."""

    _decider: Decider = field(default_factory=lambda: Decider([]))
    _names: dict[Hashable, int] = field(default_factory=dict[Hashable, int])
    _spent: set[int] = field(default_factory=set[int])

    def law(self, act: Callable[[], T]) -> dict[T, float]:
        """What `act` returns, with probabilities."""
        found: dict[T, float] = defaultdict(float)
        for result, probability in self.runs(act):
            found[result] += probability
        return found

    def runs(self, act: Callable[[], T]) -> Iterator[tuple[T, float]]:
        """Every run of `act`: what it returns, and its probability."""
        waiting: list[list[int]] = [[]]
        while waiting:
            self._decider = Decider(waiting.pop())
            self._spent.clear()
            result = act()
            waiting += self._decider.untried
            yield result, self._decider.probability

    def accepts(self, number: int, p: float, q: float) -> bool:
        """In place of `laws.accepts`."""
        return self._decider.accepts(self._spend(number), p, q)

    def draw(self, law: Law, number: int) -> int | None:
        """In place of `laws.draw`."""
        self._spend(number)
        return self._decider.draw(law, number) if mass(law).any() else None

    def choose(self, probabilities: Sequence[float]) -> int:
        """A decision of the caller's own."""
        return self._decider.choose(probabilities)

    def name(self, seed: int, position: int, purpose: int, *, request: int, branch: int) -> int:
        """In place of `philox.uniform_bits`: a number that is told from all others."""
        return self._names.setdefault((seed, position, purpose, request, branch), len(self._names))

    def _spend(self, number: int) -> int:
        if number in self._spent:
            raise SpentTwiceError(f"the number {number} decides a second time")
        self._spent.add(number)
        return number


@contextmanager
def deciding(*, fp32: bool = False) -> Generator[Decisions]:
    """Let production code decide so; its laws are exact, unless they are to be its own, `fp32`.

    While it lasts, nothing else may decode in this process.
    """
    decisions = Decisions()
    law = laws.law if fp32 else exact_law
    with ExitStack() as stack:
        for owner, name, substitute in (
            (spec_verify, "draw", decisions.draw),
            (spec_verify, "accepts", decisions.accepts),
            (sampler, "draw", decisions.draw),
            (sampler, "law", law),
            (sampling, "uniform_bits", decisions.name),
            # Drafters that run at the same time would decide in any order.
            (os, "cpu_count", lambda: 1),
        ):
            stack.enter_context(_replaced(owner, name, substitute))
        yield decisions


@contextmanager
def _replaced(owner: object, name: str, substitute: object) -> Generator[None]:
    original = getattr(owner, name)
    setattr(owner, name, substitute)
    try:
        yield
    finally:
        setattr(owner, name, original)


def _exact(row: Law) -> NDArray[np.float64]:
    """A law's masses, which it draws by, as probabilities."""
    whole = mass(row).astype(np.float64)
    exact: NDArray[np.float64] = whole / whole.sum()
    return exact
