"""An engine with a clock."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from speccompile.runtime.engine import Engine, Logits
from speccompile.runtime.engines.around import AroundEngine, computing_seconds

__all__ = ["MeteredEngine", "Work"]


@dataclass(frozen=True)
class Work:
    """What engines did: `seconds` in their steps, of which `computing` in the library itself,
    without what prepares its inputs; and the cached rows that the `steps` saw, added up, as
    `context`."""

    seconds: float = 0.0
    computing: float = 0.0
    steps: int = 0
    context: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(
            self.seconds + other.seconds,
            self.computing + other.computing,
            self.steps + other.steps,
            self.context + other.context,
        )

    def __sub__(self, other: Work) -> Work:
        return Work(
            self.seconds - other.seconds,
            self.computing - other.computing,
            self.steps - other.steps,
            self.context - other.context,
        )


class MeteredEngine(AroundEngine[Engine]):
    """An engine that keeps account of its steps."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.work = Work()

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        before, start = computing_seconds(self.engine), time.perf_counter()
        try:
            return self.engine.step(tokens, parents=parents, last=last)
        finally:
            seconds, after = time.perf_counter() - start, computing_seconds(self.engine)
            # Of an engine without a clock of its own, all of a step counts as computing.
            computing = seconds if before is None or after is None else after - before
            self.work += Work(seconds, computing, 1, self.engine.length)
