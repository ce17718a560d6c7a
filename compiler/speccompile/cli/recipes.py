"""`speccompile recipes`: the catalogue."""

from __future__ import annotations

import click

from speccompile.compiler.recipe import catalogue, load_recipe

__all__ = ["command"]


@click.command("recipes")
def command() -> None:
    """List the recipes that come with speccompile."""
    for name in catalogue():
        click.echo(f"{name:20}  {load_recipe(name).description}")
