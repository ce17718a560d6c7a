"""`speccompile pull`: an artifact out of an OCI registry."""

from __future__ import annotations

from pathlib import Path

import click

from speccompile.cli.options import signature_option
from speccompile.cli.transfer_progress import transfer_progress
from speccompile.runtime.registry.pull import pull
from speccompile.runtime.registry.reference import parse_reference
from speccompile.runtime.signatures import required_signature

__all__ = ["command"]


@click.command("pull")
@click.argument("reference", metavar="oci://REGISTRY/NAME:TAG|@DIGEST")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--engines",
    type=click.Choice(("all", "runnable")),
    default="all",
    show_default=True,
    help="runnable leaves out plans for GPUs that this host cannot run.",
)
@signature_option
def command(reference: str, folder: Path, engines: str, require_signature: Path | None) -> None:
    """Fetch an artifact from an OCI registry into DIR, and print its identity.

    Every file is checked against the artifact's own manifest, and DIR changes in one step, once all
    of it is there. A pull that was interrupted goes on when it is repeated.
    """
    place = parse_reference(reference)
    with transfer_progress("asking the registry") as progress:
        pulled = pull(
            place,
            folder,
            progress,
            runnable_only=engines == "runnable",
            trusted=require_signature or required_signature(),
        )
    click.echo(pulled.artifact.manifest.identity)
    state = "is in" if pulled.changed else "was in"
    click.echo(f"-- {pulled.artifact.manifest.name} {state} {folder}", err=True)
    for plans, lacks in sorted(pulled.left_out.items()):
        click.echo(f"-- {plans} is left out: this host lacks {lacks}", err=True)
