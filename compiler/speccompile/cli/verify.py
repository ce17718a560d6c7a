"""`speccompile verify`: prove that an artifact's output is the target's own, and gate on it."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from speccompile.cli.chitchat import chitchat_prompts
from speccompile.cli.options import artifact_argument, draft_option, on_options, threads_option
from speccompile.cli.prompts import read_prompts
from speccompile.cli.verify_progress import CheckProgress
from speccompile.cli.verify_report import Proved, render_proof
from speccompile.compiler.report.drawing import can_draw
from speccompile.runtime import host
from speccompile.runtime.proof.check import Check
from speccompile.runtime.proof.ledger import Ledger
from speccompile.runtime.proof.prove import LEVELS, Plan, prove
from speccompile.runtime.proof.variants import spelled
from speccompile.runtime.runner import Runner

__all__ = ["command"]

_LONGEST = 32
_SHIPPED = 2  # prompts of the list that ships

_Numbers = Callable[[click.Context, click.Parameter, str], tuple[int, ...]]


def _numbers(least: int, most: int) -> _Numbers:
    """Reads numbers such as 1-8, 4 or 1,2,6-8, in ascending order."""

    def read(ctx: click.Context, param: click.Parameter, value: str) -> tuple[int, ...]:
        numbers: set[int] = set()
        for part in value.split(","):
            match = re.fullmatch(r"\s*(\d{1,3})(?:-(\d{1,3}))?\s*", part)
            if match is None:
                raise click.BadParameter(f"{value!r} is no list such as 1-8 or 1,2,4", ctx, param)
            first, last = int(match[1]), int(match[2] or match[1])
            if not least <= first <= last <= most:
                raise click.BadParameter(
                    f"{part!r} is not within {least}-{most}, low to high", ctx, param
                )
            numbers.update(range(first, last + 1))
        return tuple(sorted(numbers))

    return read


def _writable(ctx: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    """Refuse a report without a folder now, not after the checks."""
    if value is not None and not value.parent.is_dir():
        raise click.BadParameter(f"the folder {value.parent} does not exist", ctx, param)
    return value


@click.command("verify")
@artifact_argument
@click.option(
    "--levels",
    callback=_numbers(0, 4),
    default="0-4",
    show_default=True,
    help="What to check: 0 the rules by enumeration, 1 sampling by chi-square tests, 2 sampled and "
    "3 greedy output token for token, 4 a stream of tokens against the target's laws.",
)
@click.option("--prompts", type=click.Path(path_type=Path), help="A list of prompts of your own.")
@click.option(
    "--chitchat", is_flag=True, help="Take the prompts of the PyPI package chitchat-dataset."
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    help=f"Use only the first prompts; default: all of --prompts, otherwise {_SHIPPED}.",
)
@click.option(
    "-n",
    "--tokens",
    type=click.IntRange(min=2),
    default=Plan.tokens,
    show_default=True,
    help="Tokens to decode after each prompt, at levels 2 and 3.",
)
@click.option(
    "--draft-lengths",
    callback=_numbers(1, _LONGEST),
    default=",".join(map(str, Plan.draft_lengths)),
    show_default=True,
    help="Proposals a round, such as 1-8 or 1,2,4; a tree is added.",
)
@draft_option("Check decoding with this draft alone, not with all")
@click.option(
    "--draws",
    type=click.IntRange(min=1),
    default=Plan.draws,
    show_default=True,
    help="Samples for each test of level 1.",
)
@click.option(
    "--tokens-pit",
    type=click.IntRange(min=1),
    default=Plan.stream_tokens,
    show_default=True,
    help="Tokens of the stream of level 4; 100000 are a thorough validation.",
)
@click.option(
    "--resume",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=_writable,
    help="Keep in this file what is done; where it exists, go on from there.",
)
@click.option(
    "--json",
    "report",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    callback=_writable,
    help="Write the checks as JSON to a file; - is standard output, and nothing else goes there.",
)
@click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=_writable,
    help="Write a report, one page that loads nothing, to a file.",
)
@on_options
@threads_option
@click.pass_context
def command(
    ctx: click.Context,
    artifact: Path,
    levels: tuple[int, ...],
    prompts: Path | None,
    chitchat: bool,
    limit: int | None,
    tokens: int,
    draft_lengths: tuple[int, ...],
    draft: str | None,
    draws: int,
    tokens_pit: int,
    resume: Path | None,
    report: Path | None,
    html: Path | None,
    on: str,
    context: int | None,
    threads: int,
) -> None:
    """Prove that ARTIFACT is lossless: speculation changes nothing but the speed.

    Checked are its files, the target's rows and roll-back, and five levels: the rules, sampling,
    output token for token, sampled and greedy, and a stream of tokens. On a GPU, whose rows differ
    by rounding with the number that is computed at once, outputs may part where the target itself
    is undecided by no more than that. The exit code is 0 for a lossless artifact, 1 for one that is
    not, 3 for one that is damaged and 4 for one that this host cannot run.
    """
    if html is not None and not can_draw():
        raise click.ClickException(
            "--html needs matplotlib to draw; install it with: pip install 'speccompile[report]'"
        )
    texts = _texts(prompts, chitchat, limit)
    plan = Plan(tokens, draft_lengths, draws, draft, levels, stream_tokens=tokens_pit)
    runner = Runner.open(artifact, threads=threads, on=on, context=context)
    ctx.call_on_close(runner.close)
    ledger = Ledger(resume, _subject(runner, texts, plan))
    as_text = str(report) != "-"
    if as_text:
        click.echo(f"{runner.manifest.name}\nsha256:{runner.manifest.identity}")
        if runner.manifest.gpus:
            click.echo(f"on {runner.on}")
    output = Console(highlight=False, quiet=not as_text)
    proved = Proved(
        name=runner.manifest.name,
        identity=runner.manifest.identity,
        on=runner.on,
        checks=_run(runner, texts, plan, ledger, output),
        host=host.describe(),
        date=datetime.now(UTC).isoformat(" ", "seconds"),
        command=shlex.join(["speccompile", *sys.argv[1:]]),
    )
    if report is not None:
        _write(report, json.dumps(proved.document(), indent=1, allow_nan=False))
    if html is not None:
        _write(html, render_proof(proved))
    if as_text:
        click.echo(_verdict(proved, levels))
    ctx.exit(1 if proved.failed else 0)


def _texts(prompts: Path | None, chitchat: bool, limit: int | None) -> list[str]:
    if prompts is not None and chitchat:
        raise click.UsageError("--prompts and --chitchat are two lists; give one")
    if prompts is not None:
        return read_prompts(prompts)[:limit]
    return (chitchat_prompts() if chitchat else read_prompts())[: limit or _SHIPPED]


def _subject(runner: Runner, texts: Sequence[str], plan: Plan) -> dict[str, object]:
    """What a proof is of, by which one that is to go on is known."""
    return {
        "identity": runner.manifest.identity,
        "on": runner.on,
        "context": runner.context,
        "prompts": texts,
        **asdict(plan),
    }


def _run(
    runner: Runner, texts: Sequence[str], plan: Plan, ledger: Ledger, output: Console
) -> list[Check]:
    """Print each check when it is done, under a bar that says how far the next one is."""
    checks: list[Check] = []
    with CheckProgress() as progress:
        for check in prove(runner, texts, plan, progress, ledger):
            checks.append(check)
            with progress.aside():
                output.print(_line(check))
    return checks


def _line(check: Check) -> Table:
    line = Table.grid(padding=(0, 2, 0, 0))
    line.add_column(width=4)
    line.add_column(width=2)
    line.add_column(width=9)
    line.add_column(ratio=1, overflow="fold")
    verdict = "[green]ok[/]" if check.passed else "[bold red]FAIL[/]"
    level = LEVELS.get(check.name)
    line.add_row(verdict, "" if level is None else f"L{level}", check.name, check.summary)
    return line


def _verdict(proved: Proved, levels: Sequence[int]) -> str:
    if proved.failed:
        return f"NOT LOSSLESS: {', '.join(proved.failed)}"
    if set(levels) != set(LEVELS.values()):
        return f"LOSSLESS, as far as level {spelled(levels)} tells"
    return "LOSSLESS"


def _write(path: Path, text: str) -> None:
    if str(path) == "-":
        click.echo(text)
        return
    try:
        path.write_text(f"{text}\n", encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from error
