"""measure_against: time engines of several precisions, so that their ratios can be trusted.

Stages that time one precision each are minutes apart, and whatever else the machine does between
would pass for a difference in precision. Here the first engine stays open, and each of the others
is opened beside it and timed step by step in turns with it: its cost is the ratio of the two, times
what the first engine usually costs. At most two engines are open at once, as in a build.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from speccompile.compiler.stages.compile import Compiled
from speccompile.compiler.stages.measure import timed_context
from speccompile.compiler.stages.opened import open_lowered
from speccompile.runtime.engine import Engine
from speccompile.runtime.timing import time_rows

__all__ = ["read_relative_costs", "relative_costs", "run"]

_FILE = "costs.json"
_TIMES = 3
"""How often each pair is timed; the ratio in between counts."""

_Timed = Mapping[str, Mapping[int, float]]


def read_relative_costs(folder: Path) -> dict[str, dict[int, float]]:
    """Milliseconds a step, by engine and rows: the result of this stage."""
    content: dict[str, dict[str, float]] = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    return {
        name: {int(rows): cost for rows, cost in costs.items()} for name, costs in content.items()
    }


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `threads`; `rows`, by role; `engines`, by name their `lower` and `compile` stages.

    The inputs are those stages. Padding is left out, as in `measure`.
    """
    engines: dict[str, tuple[str, str]] = settings["engines"]
    rows_of: dict[str, list[int]] = settings["rows"]
    infos = {
        name: replace(Compiled.read(inputs[compiled]).engine, min_rows=1)
        for name, (_, compiled) in engines.items()
    }
    rows = {name: rows_of[info.role] for name, info in infos.items()}
    first, *others = engines

    capacity = min(info.capacity for info in infos.values())
    context = timed_context(infos[first].vocab_size, capacity, [max(map(max, rows.values()))])

    def opened(name: str) -> Engine:
        folder = inputs[engines[name][0]]
        found = open_lowered(infos[name], folder, threads=settings["threads"])
        found.read(context)
        return found.engine

    anchor = opened(first)
    timed: list[_Timed] = [] if others else [time_rows({first: anchor}, context, rows[first])]
    for number, name in enumerate(others, start=1):
        settings["report"](f"{name} against {first}, {number} of {len(others)}")
        pair = {first: anchor, name: opened(name)}
        timed += [time_rows(pair, context, rows[name]) for _ in range(_TIMES)]
        del pair  # before the next is opened
    costs = relative_costs(first, timed)
    (folder / _FILE).write_text(json.dumps(costs, indent=1), encoding="utf-8")


def relative_costs(first: str, timed: Sequence[_Timed]) -> dict[str, dict[int, float]]:
    """Milliseconds by engine and rows, of `timed`, in each of which `first` was timed as well."""
    times: dict[int, list[float]] = {}
    ratios: dict[str, dict[int, list[float]]] = {}
    for costs in timed:
        for rows, cost in costs[first].items():
            times.setdefault(rows, []).append(cost)
            for name, own in costs.items():
                ratios.setdefault(name, {}).setdefault(rows, []).append(own[rows] / cost)
    return {
        name: {
            rows: round(median(times[rows]) * median(found), 3) for rows, found in by_rows.items()
        }
        for name, by_rows in ratios.items()
    }
