"""`speccompile deploy`: which of several artifacts a host runs, and the way back."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click

from speccompile.runtime.deployment import Deployment

__all__ = ["command"]


@click.command("deploy")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--add", "added", type=click.Path(path_type=Path), help="Copy an artifact there.")
@click.option("--use", "used", metavar="DIGEST", help="Put an artifact that is there to use.")
@click.option("--rollback", is_flag=True, help="Go back to what was in use before.")
@click.option("--json", "as_json", is_flag=True, help="List what is there as JSON.")
def command(
    folder: Path, added: Path | None, used: str | None, rollback: bool, as_json: bool
) -> None:
    """Keep artifacts side by side in DIR by their identity; DIR/current is the one in use.

    Without options, list them. --add and --rollback print an identity. DIGEST is an identity, or
    its first 8 digits or more. `current` changes in one step; a process goes on with what it has
    opened until it is started again.
    """
    if rollback and (added or used):
        raise click.UsageError("--rollback goes alone")
    deployment = Deployment(folder)
    if added:
        click.echo(deployment.add(added))
    if used:
        click.echo(deployment.use(used))
    if rollback:
        click.echo(deployment.roll_back())
    if not (added or used or rollback):
        _list(deployment, as_json=as_json)


def _list(deployment: Deployment, *, as_json: bool) -> None:
    held, current, previous = deployment.artifacts(), deployment.current, deployment.previous
    if as_json:
        facts = {"path": str(deployment.root), "current": current, "previous": previous}
        click.echo(json.dumps(facts | {"artifacts": [asdict(entry) for entry in held]}, indent=1))
        return
    for entry in held:
        states = {"current": current, "previous": previous}
        state = [name for name, identity in states.items() if identity == entry.identity]
        line = "  ".join((entry.identity, entry.name, ", ".join(state)))
        click.echo(line.rstrip())
