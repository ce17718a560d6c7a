"""A bar on standard error for what making a draft waits for."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from speccompile.compiler.drafts.shape_search import Rung, SearchObserver
from speccompile.compiler.drafts.shapes import Shape
from speccompile.compiler.drafts.shared import SharedObserver
from speccompile.compiler.drafts.training import Trainer

__all__ = ["draft_progress"]


class _Watching(SharedObserver, SearchObserver):
    def __init__(self, bar: Bar, show: Callable[[Rung], None] | None) -> None:
        self._bar, self._show = bar, show
        self._task = bar.add_task("opening", total=None)
        self._trial = ""

    def fetching(self, message: str) -> None:
        self._bar.update(self._task, description=message)

    def responding(self, done: int, total: int, tokens: int) -> None:
        doing = f"answers, {tokens:,} tokens"
        self._bar.update(self._task, completed=done, total=total, description=doing)

    def reading(self, done: int, total: int) -> None:
        doing = f"reading {total:,} answers once"
        self._bar.update(self._task, completed=done, total=total, description=doing)

    def searching(self, layers: int, share: float) -> None:
        doing = f"leaving out one of {layers} layers"
        self._bar.update(self._task, completed=share, total=1.0, description=doing)

    def trying(self, shape: Shape, number: int, count: int) -> None:
        self._trial = f"shape {number} of {count}, {len(shape.layers)} layers: "

    def training(self, trainer: Trainer) -> None:
        doing = f"{self._trial}learning"
        if trainer.curve:
            last = trainer.curve[-1]
            doing = (
                f"{self._trial}learning, loss {last.loss:.2f}, acceptance "
                f"{last.positions[0]:.2f}, {last.tokens_a_round:.2f} tokens a round"
            )
        tokens = trainer.schedule.tokens
        self._bar.update(self._task, completed=trainer.seen, total=tokens, description=doing)

    def tried(self, rung: Rung) -> None:
        if self._show:
            self._bar.stop()  # what is shown would be drawn over
            self._show(rung)
            self._bar.start()


@contextmanager
def draft_progress(
    console: Console, show: Callable[[Rung], None] | None = None
) -> Generator[_Watching]:
    """Yields an observer of all that makes drafts; `show` prints what a search found so far."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        yield _Watching(bar, show)
