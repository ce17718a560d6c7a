"""`speccompile draft`: make a small draft of a target, and tell what drafts are worth."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from speccompile.cli.draft_evaluate import evaluate
from speccompile.cli.options import cache_option
from speccompile.cli.tables import plain_table
from speccompile.compiler.cache import default_cache
from speccompile.compiler.recipe import load_recipe

if TYPE_CHECKING:
    from speccompile.compiler.drafts.distil import Distilled, Observer
    from speccompile.compiler.drafts.training import Trainer

__all__ = ["command"]


@click.group("draft")
def command() -> None:
    """Make a small draft of a target, for a recipe's draft.source, and tell what it is worth."""


command.add_command(evaluate)


@command.command("distil")
@click.argument("recipe")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="The folder to write; what is there is replaced when the new draft is complete.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0.0),
    help="Stop in time and write what is learned by then; the same command goes on.",
)
@cache_option
@click.option("-q", "--quiet", is_flag=True, help="Print the result, but no progress.")
def distil(
    recipe: str, output: Path, minutes: float | None, cache: Path | None, quiet: bool
) -> None:
    """Teach some of the layers of RECIPE's target to say what the whole would say.

    The target answers prompts about everything and about code; some of its own layers, with its
    tables, learn from that. RECIPE, a file or a name of the catalogue, may say how in a table
    [distil]. Stopped at any time, it goes on from its last few minutes.
    """
    from speccompile.compiler.drafts.distil import distil as make

    loaded = load_recipe(recipe)
    with _progress(Console(stderr=True, quiet=quiet)) as observer:
        made = make(
            loaded,
            output,
            cache=cache or default_cache(),
            seconds=None if minutes is None else 60.0 * minutes,
            observer=observer,
        )
    _print(Console(highlight=False), made)


def _print(console: Console, made: Distilled) -> None:
    depth = max(len(found.positions) for found in made.acceptance.values())
    table = plain_table("held-out", *(f">{at + 1}" for at in range(depth)), ">tokens a round")
    rows = [
        *made.acceptance.items(),
        *((f"{kind}, INT8", found) for kind, found in made.stored_acceptance.items()),
    ]
    for kind, found in rows:
        shares = (f"{share:.2f}" for share in found.positions)
        table.add_row(kind, *shares, f"{found.tokens_a_round:.2f}")
    layers = ", ".join(map(str, made.layers))
    console.print(f"{made.folder}: layers {layers}, after {made.tokens:,} tokens")
    console.print(table)
    if made.done:
        console.print(f'Use it in a recipe: draft.source = "{made.folder}"')
    else:
        console.print("Not all is learned yet: the same command goes on.", style="yellow")


@contextmanager
def _progress(console: Console) -> Generator[Observer]:
    from speccompile.compiler.drafts.distil import Observer

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )

    class Watching(Observer):
        def fetching(self, message: str) -> None:
            bar.update(task, description=message)

        def responding(self, done: int, total: int, tokens: int) -> None:
            doing = f"answers, {tokens:,} tokens"
            bar.update(task, completed=done, total=total, description=doing)

        def training(self, trainer: Trainer) -> None:
            doing = "learning"
            if trainer.curve:
                last = trainer.curve[-1]
                doing = (
                    f"learning, loss {last.loss:.2f}, acceptance {last.positions[0]:.2f}, "
                    f"{last.tokens_a_round:.2f} tokens a round"
                )
            tokens = trainer.schedule.tokens
            bar.update(task, completed=trainer.seen, total=tokens, description=doing)

    with Bar(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("opening", total=None)
        yield Watching()
