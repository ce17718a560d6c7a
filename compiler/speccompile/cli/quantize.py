"""`speccompile quantize --compare`: what each precision gains and costs, for the model at hand."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from speccompile.cli.bench_report import require_drawing
from speccompile.cli.comparison_report import Circumstances, render_comparison
from speccompile.cli.comparison_view import Column, View, views
from speccompile.cli.options import cache_option
from speccompile.cli.progress import stage_progress
from speccompile.compiler.cache import default_cache
from speccompile.compiler.compare import compare
from speccompile.compiler.comparison import Comparison
from speccompile.compiler.recipe import load_recipe
from speccompile.compiler.variants import ROLES
from speccompile.runtime.errors import RequestError, SpeccompileError
from speccompile.runtime.host import describe

__all__ = ["command", "document", "print_views"]


@click.command("quantize")
@click.argument("recipe")
@click.option("--compare", "comparing", is_flag=True, help="Measure precisions side by side.")
@click.option(
    "--precisions", metavar="A,B,...", help="Which; default: all that the recipe's models can have."
)
@click.option(
    "--role",
    type=click.Choice([*ROLES, "both"]),
    default="both",
    show_default=True,
    help="Whose precision.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the figures as JSON.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a report for a browser.")
@cache_option
@click.option("-q", "--quiet", is_flag=True, help="Print the result, but no progress.")
def command(
    recipe: str,
    comparing: bool,
    precisions: str | None,
    role: str,
    as_json: bool,
    html: Path | None,
    cache: Path | None,
    quiet: bool,
) -> None:
    """Compare the precisions that the models of RECIPE, a file or a name of the catalogue, could
    have: speed, size, and what is lost in quality.

    Nothing is packed: write the precision that you choose into the recipe, and build it. Finished
    stages are kept, and those of the recipe's own precision are shared with its builds.
    """
    if not comparing:
        raise RequestError(
            f"quantize compares precisions: add --compare; `speccompile build {recipe}` quantizes"
        )
    if html:
        require_drawing()
    loaded = load_recipe(recipe)
    console = Console(stderr=True, quiet=quiet or as_json, highlight=False)
    with stage_progress(console) as observer:
        comparison = compare(
            loaded,
            None if precisions is None else [name.strip() for name in precisions.split(",")],
            [name for name in ROLES if role in (name, "both")],
            cache or default_cache(),
            observer,
        )
    circumstances = Circumstances(
        host=describe(),
        date=datetime.now(UTC).isoformat(" ", "seconds"),
        command=shlex.join(["speccompile", *sys.argv[1:]]),
    )
    parts = views(comparison)
    if as_json:
        click.echo(json.dumps(document(comparison, circumstances), indent=1))
    else:
        print_views(Console(highlight=False), comparison.recipe, parts)
    if html:
        _write(html, render_comparison(comparison.recipe, parts, circumstances))


def print_views(console: Console, name: str, parts: Sequence[View]) -> None:
    """A table of each role for a terminal of 80 columns, and which precision to choose."""
    for part in parts:
        console.print(f"[b]{escape(name)}: precisions of the {part.role}[/]\n")
        console.print(_table(part.columns))
        console.print(f"\n[dim]{part.notes}[/]\n{part.recommended}\n")


def document(comparison: Comparison, circumstances: Circumstances) -> dict[str, Any]:
    """All figures, as JSON."""
    target, draft = comparison.best_target, comparison.best_draft
    return {
        **asdict(circumstances),
        **asdict(comparison),
        "recommended": {
            "target": target and target.precision,
            "draft": draft and draft.precision,
        },
    }


def _table(columns: Sequence[Column]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=0)
    table.add_column("* the recipe's own" if any(column.chosen for column in columns) else "")
    for column in columns:
        heading = f"{column.precision} *" if column.chosen else column.precision
        table.add_column(heading, justify="right", no_wrap=True, min_width=11)
    for name in columns[0].figures:
        table.add_row(name, *(column.figures[name] for column in columns))
    return table


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SpeccompileError(f"{path}: cannot be written: {error.strerror}") from error
