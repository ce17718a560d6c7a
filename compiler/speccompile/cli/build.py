"""`speccompile build`: compile a recipe, showing what is being done."""

from __future__ import annotations

import json
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from speccompile.cli.build_summary import print_summary
from speccompile.cli.engines import engine_keys, engine_option
from speccompile.cli.options import cache_option
from speccompile.cli.progress import stage_progress
from speccompile.compiler.build import build
from speccompile.compiler.cache import default_cache
from speccompile.compiler.recipe import load_recipe
from speccompile.compiler.reproducible import verify_reproducible as compare

__all__ = ["command"]


@click.command("build")
@click.argument("recipe")
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="Folder of the artifact; default: artifacts/NAME.",
)
@engine_option
@cache_option
@click.option(
    "--dump-stages",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write the graphs before, between and after the lowering passes, without weights.",
)
@click.option(
    "--verify-reproducible",
    is_flag=True,
    help="Build a second time, from the downloads alone, and fail where a file differs.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("--json", "as_json", is_flag=True, help="Print the build report as JSON.")
def command(
    recipe: str,
    output: Path | None,
    engines: tuple[str, ...],
    cache: Path | None,
    dump_stages: Path | None,
    verify_reproducible: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Compile RECIPE, a file or a name of the catalogue, into an artifact.

    A build that was interrupted goes on where it stopped; an existing artifact is replaced only
    when the new one is whole and has been shown lossless.
    """
    loaded = load_recipe(recipe, engine=engine_keys(engines))
    destination = output or Path("artifacts") / loaded.name
    console = Console(stderr=True, quiet=quiet or as_json, highlight=False)
    cache = cache or default_cache()
    with stage_progress(console) as observer:
        built = build(
            loaded,
            destination,
            cache=cache,
            observer=observer,
            graphs=dump_stages,
            command=_called(recipe, engines),
        )
        if verify_reproducible:
            console.print("the same again, from the downloads alone")
            compare(loaded, built, cache=cache, observer=observer)
    if as_json:
        document = {"path": str(built.path), **built.report}
        if verify_reproducible:
            document["reproducible"] = True
        click.echo(json.dumps(document, indent=1, sort_keys=True))
    elif not quiet:
        print_summary(console, built)
        if dump_stages:
            console.print(f"graphs before and after every pass: {escape(str(dump_stages))}")
        if verify_reproducible:
            console.print(
                f"reproducible: a second build has the identity {built.manifest.identity}"
            )


def _called(recipe: str, engines: tuple[str, ...]) -> list[str]:
    """The command line, without the places of this machine, none of which decides a byte."""
    chosen = [part for engine in engines for part in ("--engine", engine)]
    return ["speccompile", "build", Path(recipe).name, *chosen]
