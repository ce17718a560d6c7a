"""A bar over the bytes that go to or come from a registry."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from speccompile.runtime.registry.push import Progress as Report

__all__ = ["transfer_progress"]


@contextmanager
def transfer_progress(doing: str) -> Generator[Report]:
    """On standard error, where that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    disable = not console.is_terminal
    with Progress(
        *(*columns, TimeRemainingColumn()), console=console, transient=True, disable=disable
    ) as bar:
        task = bar.add_task(doing, total=None)

        def report(path: str, done: int, total: int) -> None:
            bar.update(task, completed=done, total=total or None, description=escape(path or doing))

        yield report
