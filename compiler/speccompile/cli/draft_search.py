"""`speccompile draft search`: find the shape of a distilled draft that should be fastest."""

from __future__ import annotations

import json
import re
import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from speccompile.cli.options import cache_option
from speccompile.compiler.cache import default_cache
from speccompile.compiler.recipe import load_recipe
from speccompile.runtime import host
from speccompile.runtime.artifact import open_artifact
from speccompile.runtime.errors import SpeccompileError

if TYPE_CHECKING:
    from speccompile.compiler.drafts.shape_search import Rung

__all__ = ["search"]


def _layers(
    ctx: click.Context, param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[int, ...], ...]:
    """Each a list such as 0,1,27,29."""
    if wrong := [each for each in values if not re.fullmatch(r"\d{1,4}(,\d{1,4})*", each)]:
        raise click.BadParameter(f"{wrong[0]!r} is no list such as 0,1,27,29", ctx, param)
    return tuple(tuple(map(int, each.split(","))) for each in values)


def _writable(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuse a file without a folder now, not after the search."""
    if value and not (folder := Path(value).absolute().parent).is_dir():
        raise click.BadParameter(f"{folder}: is not a folder", ctx, param)
    return value


@click.command("search")
@click.argument("recipe")
@click.option(
    "--measured",
    metavar="ARTIFACT",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="An artifact of the same target: its costs take the place of the weights' share.",
)
@click.option(
    "--count",
    "counts",
    multiple=True,
    type=click.IntRange(min=1),
    help="Try so many layers, from the target's ends and spread over it; again for more. "
    "Default: 2, 4 and 8.",
)
@click.option(
    "--layers",
    multiple=True,
    metavar="LAYER,...",
    callback=_layers,
    help="Try these layers of the target; again for more.",
)
@click.option(
    "--vocabulary",
    "vocabularies",
    multiple=True,
    type=click.IntRange(min=0),
    help="Try heads of so many tokens, 0 for all; again for more. Default: 4096 and 16384.",
)
@click.option(
    "--tokens",
    type=click.IntRange(min=1),
    default=125_000,
    show_default=True,
    help="That every shape learns from at first; the better half learns from twice as many, and "
    "so on.",
)
@click.option(
    "--minutes",
    type=click.FloatRange(min=0.0),
    help="Stop in time and show what is known by then; the same command goes on.",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    callback=_writable,
    help="Write the figures; - prints them alone.",
)
@cache_option
@click.option("-q", "--quiet", is_flag=True, help="Print the result, but no progress.")
def search(
    recipe: str,
    measured: Path | None,
    counts: tuple[int, ...],
    layers: tuple[tuple[int, ...], ...],
    vocabularies: tuple[int, ...],
    tokens: int,
    minutes: float | None,
    json_file: str | None,
    cache: Path | None,
    quiet: bool,
) -> None:
    """Find which layers, and how many tokens, a distilled draft of RECIPE's target should have.

    Shapes are taught for a short while, as the recipe's table [distil] says, the better half for
    twice as long, and so on, until one is left. Better is what is predicted to decode faster, by
    how far it stands on held-out prompts and by what its steps cost. The recipe's own shape takes
    part. Stopped at any time, the search goes on from its last few minutes.
    """
    from speccompile.cli.draft_progress import draft_progress
    from speccompile.cli.search_view import print_rung, print_searched, search_document
    from speccompile.compiler.drafts.shape_search import search_shapes
    from speccompile.compiler.drafts.shapes import Space

    console = Console(highlight=False, quiet=json_file == "-")

    def show(rung: Rung) -> None:
        print_rung(console, rung)

    loaded = load_recipe(recipe)
    with draft_progress(Console(stderr=True, quiet=quiet), show) as observer:
        searched = search_shapes(
            loaded,
            Space(counts, layers, vocabularies),
            tokens=tokens,
            measured=open_artifact(measured) if measured else None,
            cache=cache or default_cache(),
            seconds=None if minutes is None else 60.0 * minutes,
            observer=observer,
        )
    print_searched(console, searched)
    conditions = {
        "command": shlex.join(["speccompile", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(" ", "seconds"),
        "host": vars(host.describe()),
    }
    document = json.dumps(search_document(conditions, searched), indent=1)
    if json_file:
        _write(json_file, document + "\n")


def _write(file: str, text: str) -> None:
    try:
        with click.open_file(file, "w", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise SpeccompileError(f"{file}: {error.strerror}") from error
