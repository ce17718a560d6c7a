"""measure: time the engines of one role against each other, by the number of rows in a step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from speccompile.compiler.stages.compile import Compiled, sample_tokens
from speccompile.compiler.stages.opened import open_lowered
from speccompile.runtime.engine import Engine
from speccompile.runtime.timing import time_rows

__all__ = ["read_costs", "run", "timed_context"]

_FILE = "costs.json"
_CONTEXT = 256


def read_costs(folder: Path) -> dict[str, dict[int, float]]:
    """Milliseconds a step, by backend and rows: the result of this stage."""
    content: dict[str, dict[str, float]] = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    return {
        backend: {int(rows): cost for rows, cost in costs.items()}
        for backend, costs in content.items()
    }


def timed_context(vocab_size: int, capacity: int, rows: Sequence[int]) -> list[int]:
    """The tokens in the cache while steps of `rows` are timed."""
    return sample_tokens(vocab_size, min(_CONTEXT, capacity - max(rows)))


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `threads`, `rows`. The inputs are pairs of a `lower` and a `compile` stage.

    All engines of the role are open at once and take turns: measured one after the other, noise
    of the machine would choose between them. Padding is left out, so that what it costs is seen.
    """
    paths = list(inputs.values())
    rows: list[int] = settings["rows"]
    engines: dict[str, Engine] = {}
    context: list[int] = []
    for lowered, compiled in zip(paths[::2], paths[1::2], strict=True):
        info = replace(Compiled.read(compiled).engine, min_rows=1)
        context = timed_context(info.vocab_size, info.capacity, rows)
        opened = open_lowered(info, lowered, threads=settings["threads"])
        opened.read(context)
        engines[info.backend] = opened.engine
    settings["report"](f"{' and '.join(engines)} in turn, {min(rows)} to {max(rows)} rows")
    costs = time_rows(engines, context, rows)
    (folder / _FILE).write_text(json.dumps(costs, indent=1), encoding="utf-8")
