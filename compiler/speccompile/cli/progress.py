"""How stages are shown while they run."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from speccompile.compiler.execute import Observer, StageResult

__all__ = ["stage_progress"]


@contextmanager
def stage_progress(console: Console) -> Generator[Observer]:
    """An observer that shows stages on `console`."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    disable = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disable) as progress:
        yield _StageProgress(progress)


class _StageProgress(Observer):
    """A spinner with the running stage, what it does and for how long, and a line for each
    finished one."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None)
        self._stage = ""

    def started(self, stage: str, position: int, total: int) -> None:
        self._stage = stage if total == 1 else f"[{position}/{total}] {stage}"
        self._progress.reset(self._task, description=escape(self._stage))

    def reported(self, text: str) -> None:
        self._progress.update(self._task, description=escape(f"{self._stage}: {text}"))

    def finished(self, result: StageResult) -> None:
        usage = result.usage
        megabytes = usage.peak_memory_bytes / 1e6
        line = f"  {result.name:32} {usage.seconds:7.1f} s {megabytes:7.0f} MB"
        self._progress.console.print(f"[dim]{line}  cached[/]" if result.cached else line)
