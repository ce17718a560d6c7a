"""What a step costs by its rows, in the engines of several artifacts, in turns.

    python -m benchmarks.steps artifacts/before artifacts/after --role target

All engines are open at once and take turns, step by step, so that ratios between them hold on a
machine that is not quiet. Steps are not padded, whatever the artifact asks for. Beside them: how
long an engine took to open, and the memory that it added.
"""

from __future__ import annotations

import argparse
import resource
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from speccompile.runtime.artifact import open_artifact
from speccompile.runtime.engine import Engine
from speccompile.runtime.engines.opening import open_engine
from speccompile.runtime.errors import RequestError, SpeccompileError
from speccompile.runtime.timing import time_rows

_ROWS = (1, 2, 4, 5, 6, 8, 16)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.steps", description=__doc__)
    parser.add_argument("artifacts", nargs="+", type=Path)
    parser.add_argument("--role", default="target", help="the engine: target, draft, an expert")
    parser.add_argument("--context", type=int, default=128, help="tokens before the step")
    parser.add_argument("--threads", type=int, default=0, help="0 is all cores")
    options = parser.parse_args()
    console = Console()
    try:
        console.print(_measured(options.artifacts, options.role, options.context, options.threads))
    except SpeccompileError as error:
        console.print(f"[red]error:[/] {error}", highlight=False)
        return 1
    return 0


def _measured(paths: list[Path], role: str, context: int, threads: int) -> Table:
    table = Table("engine", "opened", "memory", *map(str, _ROWS), box=None)
    engines, opened = dict[str, Engine](), dict[str, tuple[float, float]]()
    vocabulary = 0
    for path in paths:
        name = str(path)
        engines[name], opened[name], vocabulary = _open(path, role, threads)
    tokens = np.random.default_rng(0).integers(0, vocabulary, context).tolist()
    for name, costs in time_rows(engines, tokens, _ROWS).items():
        seconds, megabytes = opened[name]
        cells = (f"{costs[rows]:.1f}" for rows in _ROWS)
        table.add_row(name, f"{seconds:.2f} s", f"{megabytes:.0f} MB", *cells)
    return table


def _open(path: Path, role: str, threads: int) -> tuple[Engine, tuple[float, float], int]:
    """The engine, the seconds and the megabytes that it took, and its vocabulary."""
    artifact = open_artifact(path, check=False)
    info = artifact.manifest.engines.get(role)
    if info is None or info.encoder:
        raise RequestError(f"{path}: has no {role} that decodes alone; choose another --role")
    before, start = _resident(), time.perf_counter()
    engine = open_engine(replace(info, min_rows=1), artifact.path(info.graph), threads=threads)
    engine.step([0])  # what is mapped is there once it is used
    seconds = time.perf_counter() - start
    return engine, (seconds, (_resident() - before) / 1e6), info.vocab_size


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()


if __name__ == "__main__":
    sys.exit(main())
