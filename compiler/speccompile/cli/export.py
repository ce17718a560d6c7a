"""`speccompile export`: an artifact in the form of other servers."""

from __future__ import annotations

from pathlib import Path

import click

from speccompile.cli.options import artifact_argument
from speccompile.runtime.triton.repository import write_model

__all__ = ["command"]


@click.group("export")
def command() -> None:
    """Write an artifact in the form that another server reads."""


@command.command("triton")
@artifact_argument
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--name", help="Of the model; default: the artifact's own.")
@click.option("--version", type=click.IntRange(min=1), default=1, show_default=True)
def triton(artifact: Path, directory: Path, name: str | None, version: int) -> None:
    """Add ARTIFACT, as a version of a model, to DIR, a repository of Triton Inference Server.

    The artifact is copied, and carries its runtime. The server's Python needs numpy, tokenizers,
    jinja2 and the engine that `speccompile inspect ARTIFACT` names.
    """
    written = write_model(artifact, directory, name=name, version=version)
    click.echo(f"wrote {written}; serve it with:  tritonserver --model-repository {directory}")
