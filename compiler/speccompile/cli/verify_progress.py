"""A bar with the time left, for checks that come one after the other."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["CheckProgress"]


class CheckProgress:
    """Called as `runtime.proof.check.Progress`; shown on standard error, if that is a terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True, highlight=False)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("opening the engines", total=None)
        self._name = ""

    def __enter__(self) -> CheckProgress:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def __call__(self, name: str, done: int, total: int) -> None:
        if name != self._name:
            self._name = name
            self._progress.reset(self._task, description=name, total=total, completed=done)
        self._progress.update(self._task, completed=done, total=total)

    @contextmanager
    def aside(self) -> Generator[None]:
        """Out of the way of another console on the same terminal."""
        self._progress.stop()
        try:
            yield
        finally:
            self._progress.start()
