"""`speccompile verify`: prove that an artifact's output is the target's own, and gate on it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from speccompile.cli.options import artifact_argument, on_options, threads_option
from speccompile.cli.prompts import read_prompts
from speccompile.runtime.proof.check import Check
from speccompile.runtime.proof.prove import Plan, prove
from speccompile.runtime.runner import Runner

__all__ = ["command"]

_LONGEST = 32


def _lengths(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
    """Draft lengths such as 1-8, 4 or 1,2,6-8, in ascending order."""
    lengths: set[int] = set()
    for part in value.split(","):
        match = re.fullmatch(r"\s*(\d{1,3})(?:-(\d{1,3}))?\s*", part)
        if match is None:
            raise click.BadParameter(f"{value!r} is no list such as 1-8 or 1,2,4", ctx, param)
        first, last = int(match[1]), int(match[2] or match[1])
        if not 1 <= first <= last <= _LONGEST:
            raise click.BadParameter(
                f"{part!r} is not within 1-{_LONGEST}, low to high", ctx, param
            )
        lengths.update(range(first, last + 1))
    return tuple(sorted(lengths))


def _writable(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Refuse a report without a folder now, not after the checks."""
    if value is not None and not value.parent.is_dir():
        raise click.BadParameter(f"the folder {value.parent} does not exist", ctx, param)
    return value


@click.command("verify")
@artifact_argument
@click.option("--prompts", type=click.Path(path_type=Path), help="A list of prompts of your own.")
@click.option("--limit", type=click.IntRange(min=1), help="Use only the first prompts.")
@click.option(
    "-n",
    "--tokens",
    type=click.IntRange(min=2),
    default=Plan.tokens,
    show_default=True,
    help="Tokens to decode after each prompt.",
)
@click.option(
    "--draft-lengths",
    callback=_lengths,
    default="1-8",
    show_default=True,
    help="Proposals a round, such as 1-8 or 1,2,4.",
)
@click.option(
    "--draft",
    type=click.Choice(["model", "ngram"]),
    help="Check greedy decoding with this draft alone, not with all.",
)
@click.option(
    "--draws",
    type=click.IntRange(min=1),
    default=Plan.draws,
    show_default=True,
    help="Samples for each test of sampling.",
)
@click.option(
    "--json",
    "report",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    callback=_writable,
    help="Write the checks as JSON to a file; - is standard output, and nothing else goes there.",
)
@on_options
@threads_option
@click.pass_context
def command(
    ctx: click.Context,
    artifact: Path,
    prompts: Path | None,
    limit: int | None,
    tokens: int,
    draft_lengths: tuple[int, ...],
    draft: str | None,
    draws: int,
    report: Path | None,
    on: str,
    context: int | None,
    threads: int,
) -> None:
    """Prove that ARTIFACT is lossless: speculation changes nothing but the speed.

    Checked are its files, the target's rows and roll-back, greedy output against plain decoding,
    and sampled output against the target's law. On a GPU, whose rows differ by rounding with the
    number that is computed at once, outputs may part where the target itself is undecided by no
    more than that. The exit code is 0 for a lossless artifact, 1 for one that is not, 3 for one
    that is damaged and 4 for one that this host cannot run.
    """
    texts = read_prompts(prompts)[:limit]
    plan = Plan(tokens, draft_lengths, draws, draft)
    runner = Runner.open(artifact, threads=threads, on=on, context=context)
    ctx.call_on_close(runner.close)
    as_text = str(report) != "-"
    if as_text:
        click.echo(f"{runner.manifest.name}\nsha256:{runner.manifest.identity}")
        if runner.manifest.gpus:
            click.echo(f"on {runner.on}")
    checks = _run(runner, texts, plan, Console(highlight=False, quiet=not as_text))
    failed = [check.name for check in checks if not check.passed]
    if report is not None:
        _write(report, runner, checks)
    if as_text:
        click.echo(f"NOT LOSSLESS: {', '.join(failed)}" if failed else "LOSSLESS")
    ctx.exit(1 if failed else 0)


def _run(runner: Runner, texts: Sequence[str], plan: Plan, output: Console) -> list[Check]:
    """Print each check when it is done, under a line that says how far the next one is."""
    checks: list[Check] = []
    with Console(stderr=True, highlight=False).status("opening the engines") as status:

        def progress(name: str, done: int, total: int) -> None:
            status.update(f"{name}: {done} of {total}")

        for check in prove(runner, texts, plan, progress):
            checks.append(check)
            status.stop()  # two consoles share the terminal
            output.print(_line(check))
            status.start()
    return checks


def _line(check: Check) -> Table:
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(width=4)
    line.add_column(width=9)
    line.add_column(ratio=1, overflow="fold")
    verdict = "[green]ok[/]" if check.passed else "[bold red]FAIL[/]"
    line.add_row(verdict, check.name, check.summary)
    return line


def _write(report: Path, runner: Runner, checks: Sequence[Check]) -> None:
    document = {
        "name": runner.manifest.name,
        "identity": runner.manifest.identity,
        "on": runner.on,
        "lossless": all(check.passed for check in checks),
        "checks": [asdict(check) for check in checks],
    }
    text = json.dumps(document, indent=1, allow_nan=False)
    if str(report) == "-":
        click.echo(text)
        return
    try:
        report.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{report}: {error.strerror}") from error
