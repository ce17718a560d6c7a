"""`speccompile push`: an artifact into an OCI registry."""

from __future__ import annotations

from pathlib import Path

import click

from speccompile.cli.options import artifact_argument
from speccompile.cli.tables import megabytes
from speccompile.cli.transfer_progress import transfer_progress
from speccompile.runtime.registry.push import push
from speccompile.runtime.registry.reference import parse_reference

__all__ = ["command"]


@click.command("push")
@artifact_argument
@click.argument("reference", metavar="oci://REGISTRY/NAME:TAG")
def command(artifact: Path, reference: str) -> None:
    """Send ARTIFACT to an OCI registry, after checking that it is whole, and print where it is.

    Files that the registry has are not sent again: repeat a push that was interrupted. Credentials
    are those of `docker login`. Registries on this host, and only those, are spoken to in plain
    HTTP.
    """
    place = parse_reference(reference)
    with transfer_progress("checking the artifact") as progress:
        pushed = push(artifact, place, progress)
    click.echo(pushed.reference)
    click.echo(
        f"-- {pushed.sent} of {pushed.files} files sent, {megabytes(pushed.sent_bytes)}; "
        f"identity {pushed.identity}",
        err=True,
    )
