"""Time an engine's steps by their number of rows."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence

import numpy as np

from speccompile.runtime.engine import Engine, prefill

__all__ = ["sample_tokens", "time_steps"]

_CONTEXT = 256  # rows in the cache while timing
_TURNS = 9


def time_steps(
    engines: Mapping[str, Engine], vocab_size: int, rows: Sequence[int]
) -> dict[str, dict[int, float]]:
    """Median milliseconds of a step, for every engine and row count.

    All are measured in turn, so that whatever else the machine does falls on all alike: what is
    made of these numbers are ratios.
    """
    most = max(rows)
    context = min(_CONTEXT, min(engine.capacity for engine in engines.values()) - most)
    tokens = sample_tokens(vocab_size, context + most)
    for engine in engines.values():
        engine.rollback(0)
        prefill(engine, tokens[:context])
    samples: dict[str, dict[int, list[float]]] = {
        name: {count: [] for count in rows} for name in engines
    }
    for turn in range(_TURNS + 1):
        for count in rows:
            for name, engine in engines.items():
                engine.rollback(context)
                start = time.perf_counter()
                engine.step(tokens[context : context + count])
                if turn:  # the first turn warms up
                    samples[name][count].append((time.perf_counter() - start) * 1e3)
    return {
        name: {count: round(statistics.median(times), 3) for count, times in costs.items()}
        for name, costs in samples.items()
    }


def sample_tokens(vocab_size: int, count: int) -> list[int]:
    """Arbitrary tokens, the same in every build."""
    return [int(token) for token in np.random.default_rng(0).integers(0, vocab_size, count)]
