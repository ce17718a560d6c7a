"""Time the steps of engines by their number of rows."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import numpy as np

from speccompile.runtime.engine import Engine, prefill

__all__ = ["time_rows"]

_TURNS = 9


def time_rows(
    engines: Mapping[str, Engine], context: Sequence[int], counts: Sequence[int]
) -> dict[str, dict[int, float]]:
    """Median milliseconds of a step after `context`, by engine and number of rows.

    All take turns, so that whatever else the machine does falls on all alike: what is made of these
    numbers are ratios.
    """
    for engine in engines.values():
        engine.rollback(0)
        prefill(engine, context)
    tokens = [context[-1]] * max(counts)
    samples = {name: {rows: list[float]() for rows in counts} for name in engines}
    for turn in range(_TURNS + 1):
        for rows in counts:
            for name, engine in engines.items():
                start = time.perf_counter()
                engine.step(tokens[:rows])
                seconds = time.perf_counter() - start
                engine.rollback(len(context))
                if turn:  # the first turn warms up
                    samples[name][rows].append(seconds * 1e3)
    return {
        name: {rows: round(float(np.median(times)), 3) for rows, times in costs.items()}
        for name, costs in samples.items()
    }
