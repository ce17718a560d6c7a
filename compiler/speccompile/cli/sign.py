"""`speccompile sign`: put a signature beside the files of an artifact."""

from __future__ import annotations

from pathlib import Path

import click

from speccompile.cli.options import artifact_argument
from speccompile.compiler.signing import sign_artifact
from speccompile.runtime.files import SIGNATURE_NAME

__all__ = ["command"]

_pem = click.Path(path_type=Path)


@click.command("sign")
@artifact_argument
@click.option(
    "--key", type=_pem, metavar="PEM", required=True, help="Private key, of an elliptic curve."
)
@click.option(
    "--certificate", type=_pem, metavar="PEM", help="That of the key; signatures then carry it."
)
@click.option(
    "--chain",
    type=_pem,
    metavar="PEM",
    multiple=True,
    help="Certificates between that one and the one that is trusted. May be given several times.",
)
def command(artifact: Path, key: Path, certificate: Path | None, chain: tuple[Path, ...]) -> None:
    """Sign ARTIFACT, after checking all of it, as OpenSSF Model Signing does.

    The signature is the file model.sig in it: of every file, and no part of its identity. An
    artifact that is built anew or tuned has to be signed again.
    """
    if chain and certificate is None:
        raise click.UsageError("--chain stands between two certificates: give --certificate too")
    certificates = (certificate, *chain) if certificate else ()
    opened = sign_artifact(artifact, key, certificates)
    click.echo(
        f"{artifact / SIGNATURE_NAME}: signs {len(opened.digests)} files, "
        f"identity {opened.manifest.identity}"
    )
