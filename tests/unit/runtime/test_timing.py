"""Costs are medians of steps that engines take in turn."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np
import pytest

from speccompile.runtime.engine import Logits
from speccompile.runtime.timing import time_rows

COUNTS = range(1, 10)


class SlowEngine:
    """Takes `seconds` a row, by a clock that only it moves."""

    capacity = 64
    takes_trees = False

    def __init__(self, name: str, seconds: float, clock: SimpleNamespace, order: list[str]) -> None:
        self.length = 0
        self._name, self._seconds, self._clock, self._order = name, seconds, clock, order

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        self._order.append(self._name)
        self._clock.now += self._seconds * len(tokens)
        self.length += len(tokens)
        return np.zeros((last or len(tokens), 4), np.float32)

    def rollback(self, length: int) -> None:
        self.length = length


def test_costs_are_medians_of_steps_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=0.0)
    order: list[str] = []
    monkeypatch.setattr(
        "speccompile.runtime.timing.time", SimpleNamespace(perf_counter=lambda: clock.now)
    )
    engines = {
        "target": SlowEngine("target", 0.002, clock, order),
        "draft": SlowEngine("draft", 0.001, clock, order),
    }
    costs = time_rows(engines, [1, 2, 3], COUNTS)
    assert costs["target"] == {rows: pytest.approx(2.0 * rows) for rows in COUNTS}
    assert costs["draft"] == {rows: pytest.approx(1.0 * rows) for rows in COUNTS}
    assert order == ["target", "draft"] * (len(order) // 2)
    assert [engine.length for engine in engines.values()] == [3, 3]
