"""One measured generation, and how figures of several are summed up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from speccompile.runtime.session import AnySession, Finish, Request
from speccompile.runtime.statistics import Statistics

__all__ = [
    "NOTHING_TO_COMPARE",
    "Budget",
    "Progress",
    "Run",
    "Spread",
    "generate",
    "silent",
    "spread",
]

NOTHING_TO_COMPARE = (
    "no prompt was answered with more than one token, so there is no speed to compare; "
    "allow more new tokens or give other prompts"
)

Progress = Callable[[int, int, str], None]
"""Called with the steps done, all steps, and what is done next."""


def silent(done: int, total: int, doing: str) -> None:
    """No progress."""


class Budget:
    """Time for a measurement that may end after any of its parts, begun now."""

    def __init__(self, seconds: float | None) -> None:
        """Without `seconds`, there is no end of it."""
        self._seconds = seconds
        self._start = time.perf_counter()

    def allows(self, done: int) -> bool:
        """Whether another part is likely to fit, of the same length as those `done`; a first one
        always does."""
        if self._seconds is None or not done:
            return True
        elapsed = time.perf_counter() - self._start
        return elapsed * (done + 1) / done <= self._seconds


@dataclass(frozen=True)
class Run:
    """One generation; `seconds` is all of it, the prompt included."""

    tokens: tuple[int, ...]
    finish: Finish
    seconds: float
    statistics: Statistics

    @property
    def decoded(self) -> bool:
        """Whether there is a speed: the first token comes from the prompt alone."""
        return self.statistics.decode_tokens > 0

    @property
    def decode_seconds(self) -> float:
        """From the first token to the end, by the wall clock: whatever the runtime does counts."""
        return self.seconds - self.statistics.first_token_seconds

    @property
    def tokens_per_second(self) -> float:
        """Of decoding; 0 where nothing was decoded."""
        return self.statistics.decode_tokens / self.decode_seconds if self.decoded else 0.0

    def same(self, other: Run) -> bool:
        """Whether both have the same tokens, and ended for the same reason."""
        return (self.tokens, self.finish) == (other.tokens, other.finish)

    def speedup(self, over: Run) -> float:
        """Of decoding, in which a draft's reading of the prompt is counted; both have decoded."""
        return self.tokens_per_second / over.tokens_per_second


@dataclass(frozen=True)
class Spread:
    """A quantity over the prompts: its median, and the percentiles 10 and 90."""

    p10: float
    median: float
    p90: float


def spread(values: Iterable[float]) -> Spread:
    """Of at least one value."""
    figures = np.fromiter(values, np.float64)
    return Spread(*(float(np.percentile(figures, percent)) for percent in (10, 50, 90)))


def generate(session: AnySession, prompt: Sequence[int], request: Request) -> Run:
    """Have a session answer a prompt, and time it."""
    start = time.perf_counter()
    tokens = tuple(session.generate(prompt, request))
    seconds = time.perf_counter() - start
    return Run(tokens, session.finish, seconds, session.statistics)
