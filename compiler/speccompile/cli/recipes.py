"""`speccompile recipes`: the catalogue."""

from __future__ import annotations

import json

import click

from speccompile.compiler.recipe import Recipe, catalogue, load_recipe

__all__ = ["command"]


@click.command("recipes")
@click.option("--json", "as_json", is_flag=True, help="Print the list as JSON.")
def command(as_json: bool) -> None:
    """List the recipes that come with speccompile."""
    entries = [_entry(load_recipe(name)) for name in catalogue()]
    if as_json:
        click.echo(json.dumps(entries, indent=1))
        return
    for entry in entries:
        click.echo(entry.pop("name"))
        for key, value in entry.items():
            click.echo(f"  {key:8} {value}")


def _entry(recipe: Recipe) -> dict[str, str]:
    """What one chooses by. The licence is that of the weights, of all models if they differ."""
    drafts = recipe.drafts.values()
    licenses = [recipe.target.license]
    licenses += [draft.license for draft in drafts if draft.source != "target"]
    return {
        "name": recipe.name,
        "target": recipe.target.source,
        "draft": ", ".join(draft.source for draft in drafts) or "n-grams",
        "purpose": recipe.purpose,
        "license": ", ".join(dict.fromkeys(licenses)),
    }
