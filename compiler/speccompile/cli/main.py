"""The `speccompile` command: a group whose commands are imported when they are called."""

from __future__ import annotations

import sys
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import version
from typing import NoReturn

import click

from speccompile.compiler.packages import missing_package
from speccompile.runtime.errors import SpeccompileError

__all__ = ["cli", "main"]

_COMMANDS = {
    "build": "Compile a recipe into an artifact.",
    "run": "Generate text with an artifact.",
    "bench": "Measure an artifact against plain decoding.",
    "quantize": "Compare the precisions that a recipe could have.",
    "draft": "Train a small draft of a recipe's target.",
    "tune": "Fit an artifact to this host and to its prompts.",
    "verify": "Prove that an artifact is lossless.",
    "check": "Check that an artifact is whole, and who signed it.",
    "sign": "Sign an artifact.",
    "inspect": "Show and check what an artifact holds.",
    "doctor": "Show what can run and be built on this machine.",
    "push": "Send an artifact to an OCI registry.",
    "pull": "Fetch an artifact from an OCI registry.",
    "deploy": "Choose which of several artifacts a host runs.",
    "export": "Write an artifact in the form of another server.",
    "recipes": "List the recipes that come with speccompile.",
    "cache": "Show or clear what builds keep on disk.",
    "recipe": "Write a recipe for models of your own.",
}


class LazyGroup(click.Group):
    """Knows its commands and their summaries without importing them: help must be instant."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        command: click.Command = import_module(f"speccompile.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and not name.startswith("-"):
            near = get_close_matches(name, _COMMANDS, 1)
            way_out = f"did you mean {near[0]}?" if near else f"there are {', '.join(_COMMANDS)}"
            raise click.UsageError(f"no such command: {name}; {way_out}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with:  speccompile build smollm2-135m",
)
@click.version_option(version("speccompile"), prog_name="speccompile")
def cli() -> None:
    """Compile a draft and a target language model into one verified speculative-decoding artifact,
    and run it."""


def main() -> NoReturn:
    """Run the command line; an expected error is one line on standard error, never a traceback."""
    try:
        cli.main(standalone_mode=True)
    except SpeccompileError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        missing = missing_package(error)
        if missing is None:
            raise
        click.echo(f"error: {missing}", err=True)
        sys.exit(1)
    sys.exit(0)


if __name__ == "__main__":
    main()
