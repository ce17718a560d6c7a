"""Options and arguments that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from speccompile.runtime.draft_names import DRAFTS

__all__ = [
    "artifact_argument",
    "cache_option",
    "draft_option",
    "on_options",
    "read_text",
    "signature_option",
    "threads_option",
]

_Command = TypeVar("_Command", bound=Callable[..., Any])


def artifact_argument(command: _Command) -> _Command:
    """ARTIFACT: a folder; whether it is an artifact is for the runtime to say."""
    return click.argument("artifact", type=click.Path(path_type=Path))(command)


def cache_option(command: _Command) -> _Command:
    """--cache: None is the user's own."""
    return click.option(
        "--cache",
        type=click.Path(path_type=Path),
        help="Downloads and finished work; default: $SPECCOMPILE_CACHE, else ~/.cache/speccompile.",
    )(command)


def draft_option(meaning: str) -> Callable[[_Command], _Command]:
    """--draft: which experts there are is for the artifact to say."""
    known = f"{', '.join(DRAFTS)}, or an expert of ARTIFACT."
    return click.option("--draft", metavar="NAME", help=f"{meaning}: {known}")


def threads_option(command: _Command) -> _Command:
    """--threads: 0 takes every core."""
    return click.option(
        "--threads", type=click.IntRange(min=0), default=0, help="Threads; 0 takes every core."
    )(command)


def on_options(command: _Command) -> _Command:
    """--on, where to run, and --context, for how long a sequence: for the runtime to judge."""
    command = click.option(
        "--context",
        type=click.IntRange(min=1),
        help="Longest sequence, in tokens; on a GPU the smallest plans are taken that hold it. "
        "Default: the artifact's own.",
    )(command)
    return click.option(
        "--on",
        metavar="auto|cpu|FOLDER",
        default="auto",
        show_default=True,
        help="Engines to run: the CPU's, or a folder of plans for a GPU. auto takes plans that "
        "`speccompile doctor ARTIFACT` verified on this GPU, else the CPU.",
    )(command)


def signature_option(command: _Command) -> _Command:
    """--require-signature: None leaves it to the environment."""
    return click.option(
        "--require-signature",
        type=click.Path(path_type=Path),
        metavar="PEM",
        help="Refuse an artifact that is not signed by this public key, or by a certificate that "
        "these vouch for. Default: $SPECCOMPILE_REQUIRE_SIGNATURE, if set.",
    )(command)


def read_text(path: Path) -> str:
    """A text file, or an error that names it."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise click.ClickException(f"{path}: is not UTF-8 text ({error.reason})") from error
