"""What a step costs by its rows, in the engines of several artifacts, in turns.

    python -m benchmarks.steps artifacts/before artifacts/after --role target

All engines are open at once and take turns, step by step, so that ratios between them hold on a
machine that is not quiet. Steps are not padded, whatever the artifact asks for. Beside them: how
long an engine took to open, and the memory that it added.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.table import Table

from speccompile.cli.options import threads_option
from speccompile.cli.tables import plain_table
from speccompile.runtime.artifact import open_artifact
from speccompile.runtime.engine import Engine
from speccompile.runtime.engines.opening import open_engine
from speccompile.runtime.errors import RequestError, SpeccompileError
from speccompile.runtime.timing import time_rows

_ROWS = (1, 2, 4, 5, 6, 8, 16)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("artifacts", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--role", default="target", show_default=True, help="Or draft, or an expert.")
@click.option(
    "--context",
    type=click.IntRange(min=1),
    default=128,
    show_default=True,
    help="Tokens before the step.",
)
@threads_option
def main(artifacts: tuple[Path, ...], role: str, context: int, threads: int) -> None:
    """What a step of 1 to 16 rows costs in the engines of ARTIFACTS, in turns, in milliseconds."""
    Console().print(_measured(artifacts, role, context, threads))


def _measured(paths: Sequence[Path], role: str, context: int, threads: int) -> Table:
    table = plain_table("engine", ">opened", ">memory", *(f">{rows}" for rows in _ROWS))
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
    try:
        main(standalone_mode=False)
    except SpeccompileError as error:
        sys.exit(f"error: {error}")
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
