"""An engine with a clock."""

from __future__ import annotations

import time
from collections.abc import Sequence

from speccompile.runtime.engine import Engine, Logits

__all__ = ["MeteredEngine"]


class MeteredEngine:
    """An engine that keeps the time spent in its steps."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.seconds = 0.0
        self.steps = 0

    @property
    def capacity(self) -> int:
        return self._engine.capacity

    @property
    def takes_trees(self) -> bool:
        return self._engine.takes_trees

    @property
    def length(self) -> int:
        return self._engine.length

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        start = time.perf_counter()
        try:
            return self._engine.step(tokens, parents=parents, last=last)
        finally:
            self.seconds += time.perf_counter() - start
            self.steps += 1

    def rollback(self, length: int) -> None:
        self._engine.rollback(length)
