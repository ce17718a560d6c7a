"""`speccompile tune`: fit an artifact's measurements to this host and to the texts it serves."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from speccompile.cli.options import artifact_argument, threads_option
from speccompile.cli.prompts import encode, read_prompts
from speccompile.cli.tune_summary import print_tuning
from speccompile.compiler.tune.store import reset as restore
from speccompile.compiler.tune.tune import Progress, tune
from speccompile.runtime import host
from speccompile.runtime.draft_names import UNITED
from speccompile.runtime.placement import CPU
from speccompile.runtime.request import Request
from speccompile.runtime.runner import Runner
from speccompile.runtime.sampling import Sampling

__all__ = ["command"]


@click.command("tune")
@artifact_argument
@click.option("--prompts", type=click.Path(path_type=Path), help="A .txt, .jsonl or .jsonl.gz.")
@click.option("--limit", type=click.IntRange(min=1), help="Take only so many prompts.")
@click.option(
    "-n", "--tokens", type=click.IntRange(min=2), default=128, show_default=True, help="Of each."
)
@click.option(
    "--draft",
    metavar="NAME",
    help="Who proposes: model, ngram, suffix or an expert; default: the model, where there is one. "
    "Only it gets a predictor.",
)
@click.option(
    "--temperature",
    type=click.FloatRange(min=0.0, max=100.0),
    default=0.0,
    show_default=True,
    help="That requests will have; 0 is greedy.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--raw", is_flag=True, help="Continue the prompts as they are, no chat template.")
@click.option("--costs-only", is_flag=True, help="Only time steps: after a move to another host.")
@click.option("--force", is_flag=True, help="Store a predictor that misses its gates, too.")
@click.option("--reset", is_flag=True, help="Restore what the build measured, and stop.")
@threads_option
@click.pass_context
def command(
    ctx: click.Context,
    artifact: Path,
    prompts: Path | None,
    limit: int | None,
    tokens: int,
    draft: str | None,
    temperature: float,
    seed: int,
    raw: bool,
    costs_only: bool,
    force: bool,
    reset: bool,
    threads: int,
) -> None:
    """Measure ARTIFACT on this host's CPU and on prompts like those it will get, and keep it there.

    That is the cost of steps, how far proposals stand, and a small network that predicts from a
    draft's own signals which tokens will stand; it is stored only if it is good on prompts that it
    was not made from. All of this decides how much is drafted, never what is said, and is no part
    of the identity. Stopped at any time, it leaves ARTIFACT as it was.
    """
    if (reset or costs_only) and (prompts or force):
        raise click.UsageError(f"--{'reset' if reset else 'costs-only'} takes no prompts")
    if reset:
        changed = restore(artifact)
        click.echo(f"{artifact}: {'is as it was built again' if changed else 'was never tuned'}")
        return
    texts = [] if costs_only else read_prompts(prompts)[:limit]
    runner = Runner.open(artifact, threads=threads, on=CPU)
    ctx.call_on_close(runner.close)
    request = Request(
        max_new_tokens=tokens,
        sampling=Sampling(temperature=temperature, seed=seed),
        stop_tokens=frozenset(runner.manifest.model.eos_token_ids),
    )
    encoded = encode(runner, texts, raw=raw)
    conditions = {
        "command": shlex.join(["speccompile", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(" ", "seconds"),
        "host": asdict(host.describe()),
    }
    kind = draft or ("model" if "draft" in runner.roles else "ngram")
    if kind in (*UNITED, "none"):
        raise click.UsageError(f"--draft {kind} is no single draft; tune those that it asks")
    with _progress() as report:
        tuning = tune(
            *(runner, encoded, request, kind), conditions=conditions, force=force, progress=report
        )
    print_tuning(Console(highlight=False), tuning)


@contextmanager
def _progress() -> Generator[Progress]:
    """A bar with the time left on standard error, where that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:16}"), BarColumn(), TimeRemainingColumn())
    disable = not console.is_terminal
    with Bar(*columns, console=console, transient=True, disable=disable) as bar:
        task = bar.add_task("opening", total=None)

        def report(done: int, total: int, doing: str) -> None:
            bar.update(task, completed=done, total=total or None, description=doing)

        yield report
