"""`speccompile draft`: make a small draft of a target, and tell what drafts are worth."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.table import Table

from speccompile.cli.draft_evaluate import evaluate
from speccompile.cli.draft_search import search
from speccompile.cli.draft_t5 import t5
from speccompile.cli.options import cache_option
from speccompile.cli.tables import plain_table
from speccompile.compiler.cache import default_cache
from speccompile.compiler.recipe import load_recipe
from speccompile.runtime.artifact import open_artifact

if TYPE_CHECKING:
    from speccompile.compiler.drafts.acceptance import Acceptance
    from speccompile.compiler.drafts.distil import Distilled
    from speccompile.compiler.drafts.shared import Shared

__all__ = ["command"]


@click.group("draft")
def command() -> None:
    """Make a small draft of a target, for a recipe's draft.source, and tell what it is worth."""


command.add_command(evaluate)
command.add_command(search)
command.add_command(t5)


_output = click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    required=True,
    help="The folder to write; what is there is replaced when the new draft is complete.",
)
_minutes = click.option(
    "--minutes",
    type=click.FloatRange(min=0.0),
    help="Stop in time and write what is learned by then; the same command goes on.",
)
_quiet = click.option("-q", "--quiet", is_flag=True, help="Print the result, but no progress.")


@command.command("distil")
@click.argument("recipe")
@_output
@_minutes
@cache_option
@_quiet
def distil(
    recipe: str, output: Path, minutes: float | None, cache: Path | None, quiet: bool
) -> None:
    """Teach some of the layers of RECIPE's target to say what the whole would say.

    The target answers prompts about everything and about code; some of its own layers, with its
    tables, learn from that. RECIPE, a file or a name of the catalogue, may say how in a table
    [distil]. Stopped at any time, it goes on from its last few minutes.
    """
    from speccompile.cli.draft_progress import draft_progress
    from speccompile.compiler.drafts.distil import distil as make

    loaded = load_recipe(recipe)
    with draft_progress(Console(stderr=True, quiet=quiet)) as observer:
        made = make(
            loaded,
            output,
            cache=cache or default_cache(),
            seconds=None if minutes is None else 60.0 * minutes,
            observer=observer,
        )
    _print(Console(highlight=False), made)


@command.command("shared")
@click.argument("recipe")
@_output
@click.option(
    "--measured",
    metavar="ARTIFACT",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="An artifact of the same target: its costs take the place of the weights' share.",
)
@_minutes
@cache_option
@_quiet
def shared(
    recipe: str,
    output: Path,
    measured: Path | None,
    minutes: float | None,
    cache: Path | None,
    quiet: bool,
) -> None:
    """Make a draft of some of the layers of RECIPE's target, without weights of its own.

    The layers that are missed least are left out, one after the other, by what the rest still meets
    of the target's answers. Those that are kept share the target's matrices and its cache; only
    their norms are trained. RECIPE, a file or a name of the catalogue, may say how in a table
    [shared]. Stopped at any time, it goes on from its last few minutes.
    """
    from speccompile.cli.draft_progress import draft_progress
    from speccompile.compiler.drafts.shared import share

    loaded = load_recipe(recipe)
    with draft_progress(Console(stderr=True, quiet=quiet)) as observer:
        made = share(
            loaded,
            output,
            measured=open_artifact(measured) if measured else None,
            cache=cache or default_cache(),
            seconds=None if minutes is None else 60.0 * minutes,
            observer=observer,
        )
    _print_shared(Console(highlight=False), made)


def _print_shared(console: Console, made: Shared) -> None:
    columns = (">speed-up", *((">tokens/s",) if made.pace.measured else ()))
    table = _held_out(_depth(made.acceptance), "cache", *columns)
    for kind in made.acceptance:
        for cache, found in (("target's", made.acceptance), ("own", made.apart)):
            predicted = made.pace.predict(made.share, found[kind].positions)
            cells = [f"{predicted.speedup:.2f}x at {predicted.length}"]
            if made.pace.measured:
                cells.append(f"{predicted.tokens_per_second:.1f}")
            table.add_row(*_acceptance(kind, found[kind], cache), *cells)
    cost = made.pace.predict(made.share, ()).cost
    how = "in proportion to a measured one" if made.pace.measured else "by the weights it reads"
    layers = ", ".join(map(str, made.layers))
    console.print(
        f"{made.folder}: {len(made.layers)} of {made.depth} layers ({layers}), "
        f"norms after {made.tokens:,} tokens"
    )
    console.print(table)
    console.print(
        "Speed-up is predicted, at the best number of tokens drafted. A step costs "
        f"{cost:.2f} of the target's ({how}), so that no acceptance makes it faster than "
        f"{1.0 / cost:.1f}x; 15x would take a cost below {1.0 / 15.0:.3f}."
    )
    _print_end(console, made.folder, done=made.done)


def _print(console: Console, made: Distilled) -> None:
    rows = [
        *made.acceptance.items(),
        *((f"{kind}, INT8", found) for kind, found in made.stored_acceptance.items()),
    ]
    table = _held_out(_depth(made.acceptance))
    for kind, found in rows:
        table.add_row(*_acceptance(kind, found))
    layers = ", ".join(map(str, made.layers))
    console.print(f"{made.folder}: layers {layers}, after {made.tokens:,} tokens")
    console.print(table)
    _print_end(console, made.folder, done=made.done)


def _held_out(depth: int, *more: str) -> Table:
    """For chains of `depth`; the first of `more` headings stands behind the kind, the others at
    the end."""
    positions = (f">{at + 1}" for at in range(depth))
    return plain_table("held-out", *more[:1], *positions, ">tokens a round", *more[1:])


def _depth(found: Mapping[str, Acceptance]) -> int:
    return max(len(each.positions) for each in found.values())


def _acceptance(kind: str, found: Acceptance, *more: str) -> tuple[str, ...]:
    shares = (f"{share:.2f}" for share in found.positions)
    return kind, *more, *shares, f"{found.tokens_a_round:.2f}"


def _print_end(console: Console, folder: Path, *, done: bool) -> None:
    if done:
        console.print(f'Use it in a recipe: draft.source = "{folder}"')
    else:
        console.print("Not all is learned yet: the same command goes on.", style="yellow")
