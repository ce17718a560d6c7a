"""An engine with a clock."""

from __future__ import annotations

import time
from collections.abc import Sequence

from speccompile.runtime.engine import Engine, Logits
from speccompile.runtime.engines.around import AroundEngine

__all__ = ["MeteredEngine"]


class MeteredEngine(AroundEngine[Engine]):
    """An engine that keeps the time spent in its steps."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.seconds = 0.0
        self.steps = 0

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        start = time.perf_counter()
        try:
            return self.engine.step(tokens, parents=parents, last=last)
        finally:
            self.seconds += time.perf_counter() - start
            self.steps += 1
