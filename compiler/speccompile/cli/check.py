"""`speccompile check`: whether an artifact is whole, and signed by who is trusted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from speccompile.cli.options import artifact_argument
from speccompile.cli.tables import megabytes, printable
from speccompile.runtime.artifact import Artifact, hash_files, list_files, open_artifact
from speccompile.runtime.files import SIGNATURE_NAME
from speccompile.runtime.hashed import hash_unless_known, remember
from speccompile.runtime.signatures import required_signature

__all__ = ["command"]


@click.command("check")
@artifact_argument
@click.option(
    "--fast", is_flag=True, help="Do not hash again what was checked here and has not changed."
)
@click.option(
    "--key",
    "--certificate",
    "trusted",
    type=click.Path(path_type=Path),
    metavar="PEM",
    help="Who must have signed it: their public key, or certificates that vouch for theirs. "
    "Default: $SPECCOMPILE_REQUIRE_SIGNATURE, if set.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
def command(artifact: Path, fast: bool, trusted: Path | None, as_json: bool) -> None:
    """Check that ARTIFACT is what was built, every file and no other, and who signed it.

    What a host must have to run it is for `speccompile doctor`. Exit codes: 3 for a folder that is
    no whole artifact, 6 for one that is not signed by who is trusted.
    """
    trusted = trusted or required_signature()
    start, began = time.perf_counter(), time.time()
    hasher = partial(_hash_with_bar, fast)
    opened = open_artifact(artifact, on_cpu=False, trusted=trusted, hasher=hasher)
    seconds = time.perf_counter() - start
    remember(opened.root, {path: entry.sha256 for path, entry in opened.files.items()}, began)
    size = sum(entry.size for entry in opened.files.values())
    if as_json:
        document = {
            "path": str(artifact),
            "name": opened.manifest.name,
            "identity": opened.manifest.identity,
            "files": len(opened.digests),
            "bytes": size,
            "signed": _is_signed(opened),
            "verified_with": str(trusted) if trusted else None,
            "seconds": round(seconds, 3),
        }
        click.echo(json.dumps(document, indent=1))
        return
    click.echo(
        f"{artifact} is whole: {printable(opened.manifest.name)}, {len(opened.digests)} files, "
        f"{megabytes(size)}, checked in {seconds:.2f} s"
    )
    click.echo(f"identity   {opened.manifest.identity}")
    click.echo(f"signature  {_signature(opened, trusted)}")


def _hash_with_bar(fast: bool, root: Path, paths: Iterable[str]) -> Mapping[str, str]:
    paths, sizes = list(paths), list_files(root)
    console = Console(stderr=True, highlight=False)
    columns = (
        TextColumn("{task.description}"),
        *(BarColumn(), DownloadColumn(), TransferSpeedColumn()),
    )
    disable = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disable) as bar:
        task = bar.add_task("hashing", total=sum(sizes.get(path, 0) for path in paths))
        hash_all = hash_unless_known if fast else hash_files
        return hash_all(root, paths, partial(bar.advance, task))


def _is_signed(artifact: Artifact) -> bool:
    return (artifact.root / SIGNATURE_NAME).is_file()


def _signature(artifact: Artifact, trusted: Path | None) -> str:
    if trusted:
        return f"verified with {trusted}"
    if _is_signed(artifact):
        return f"{SIGNATURE_NAME}, not verified: --key PEM does"
    return "none"
