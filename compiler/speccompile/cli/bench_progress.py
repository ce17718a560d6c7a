"""How a benchmark is shown while it runs."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from speccompile.runtime.bench.run import Progress as Report

__all__ = ["bench_progress"]

_HOUR = 3600.0  # the time left is told by all that was measured, as some variants take longer


@contextmanager
def bench_progress() -> Generator[Report]:
    """A bar on standard error, where that is a terminal, with the time spent and left."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description:16}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    disable = not console.is_terminal
    bar = Progress(
        *columns, console=console, transient=True, disable=disable, speed_estimate_period=_HOUR
    )
    with bar:
        task = bar.add_task("opening")

        def report(done: int, total: int, doing: str) -> None:
            bar.update(task, completed=done, total=total, description=doing)

        yield report
