"""`speccompile draft t5`: train a T5 and a draft of it from nothing."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from speccompile.cli.options import cache_option
from speccompile.compiler.cache import default_cache
from speccompile.compiler.recipe import load_recipe

if TYPE_CHECKING:
    from speccompile.compiler.drafts.t5 import PairObserver, Role, TrainedPair
    from speccompile.compiler.drafts.training import Trainer

__all__ = ["t5"]


@click.command("t5")
@click.argument("recipe")
@click.option(
    "--minutes",
    type=click.FloatRange(min=0.0),
    help="Stop in time and write what is learned by then; the same command goes on.",
)
@cache_option
@click.option("-q", "--quiet", is_flag=True, help="Print the result, but no progress.")
def t5(recipe: str, minutes: float | None, cache: Path | None, quiet: bool) -> None:
    """Train RECIPE's target and draft from nothing: a small T5 pair for a real task.

    RECIPE's table [t5] names a pronouncing dictionary. The target learns to write English words as
    they are spoken, with a vocabulary learned of the task's text; the draft learns what the target
    answers. Both are written where target.source and draft.source say, and `speccompile build
    RECIPE` takes them from there. Stopped at any time, it goes on from its last few minutes.
    """
    from speccompile.compiler.drafts.t5 import train_pair

    loaded = load_recipe(recipe)
    with _progress(Console(stderr=True, quiet=quiet)) as observer:
        pair = train_pair(
            loaded,
            cache=cache or default_cache(),
            seconds=None if minutes is None else 60.0 * minutes,
            observer=observer,
        )
    _print(Console(highlight=False, soft_wrap=True), pair, recipe)


def _print(console: Console, pair: TrainedPair, recipe: str) -> None:
    for role, count in pair.parameters.items():
        console.print(f"{pair.folders[role]}: {count:,} parameters")
    console.print(
        f"Of words that the target never saw it writes {pair.words:.0%} right, and of their "
        f"tokens {pair.tokens:.0%} behind right ones."
    )
    if found := pair.acceptance:
        shares = " ".join(f"{share:.2f}" for share in found.positions)
        console.print(
            f"The draft's tokens stand {shares} by position, {found.tokens_a_round:.2f} tokens "
            f"a round of {len(found.positions)} drafted; see {pair.prompts} for the texts."
        )
    if pair.done:
        console.print(f"Build it: speccompile build {recipe}")
    else:
        console.print("Not all is learned yet: the same command goes on.", style="yellow")


@contextmanager
def _progress(console: Console) -> Generator[PairObserver]:
    from speccompile.compiler.drafts.t5 import PairObserver

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )

    class Watching(PairObserver):
        def fetching(self, message: str) -> None:
            bar.update(task, description=message)

        def responding(self, done: int, total: int, tokens: int) -> None:
            doing = f"target answers, {tokens:,} tokens"
            bar.update(task, completed=done, total=total, description=doing)

        def training(self, role: Role, trainer: Trainer) -> None:
            doing = f"{role} learns"
            if trainer.curve:
                last = trainer.curve[-1]
                doing += f", loss {last.loss:.2f}, right {last.positions[0]:.2f}"
            tokens = trainer.schedule.tokens
            bar.update(task, completed=trainer.seen, total=tokens, description=doing)

    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("opening", total=None)
        yield Watching()
