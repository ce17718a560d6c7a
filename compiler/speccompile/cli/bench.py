"""`speccompile bench`: speculative against plain decoding, on this host."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from speccompile.cli.bench_report import Conditions, render_report, require_drawing
from speccompile.cli.options import artifact_argument, on_options, threads_option
from speccompile.cli.prompts import read_prompts
from speccompile.runtime import host
from speccompile.runtime.bench import COST_ROWS, BenchResult, run_bench
from speccompile.runtime.bench import Progress as Report
from speccompile.runtime.chat import Message
from speccompile.runtime.errors import RequestError, SpeccompileError
from speccompile.runtime.placement import CPU
from speccompile.runtime.runner import DRAFTS, Runner
from speccompile.runtime.session import Request

__all__ = ["command", "document", "print_tables"]


@click.command("bench")
@artifact_argument
@click.option("--prompts", type=click.Path(path_type=Path), help="A .txt, .jsonl or .jsonl.gz.")
@click.option("--limit", type=click.IntRange(min=1), help="Take only so many prompts.")
@click.option("-n", "--max-new-tokens", type=click.IntRange(min=2), default=128, show_default=True)
@click.option("--draft", type=click.Choice(DRAFTS), help="Who proposes; default: the artifact's.")
@click.option("--draft-length", type=click.IntRange(min=1), help="Most proposals a round.")
@click.option("--raw", is_flag=True, help="Continue the prompts as they are, no chat template.")
@click.option("--rounds", type=click.IntRange(min=1), default=1, help="Measure so many times.")
@click.option("--json", "json_file", metavar="FILE", help="Write the figures; - prints them alone.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a report for a browser.")
@on_options
@threads_option
@click.pass_context
def command(
    ctx: click.Context,
    artifact: Path,
    prompts: Path | None,
    limit: int | None,
    max_new_tokens: int,
    draft: str | None,
    draft_length: int | None,
    raw: bool,
    rounds: int,
    json_file: str | None,
    html: Path | None,
    on: str,
    context: int | None,
    threads: int,
) -> None:
    """Compare speculative with plain decoding on the same engine of ARTIFACT.

    Every prompt is decoded greedily both ways, one right after the other, from empty caches. The
    ratios are medians over prompts. Exits with 1 if any output differs, but on a GPU, where ties
    are decided by rounding: `speccompile verify` tells them from faults.
    """
    if html:
        require_drawing()
    texts = read_prompts(prompts)[:limit]
    runner = Runner.open(artifact, threads=threads, on=on, context=context)
    ctx.call_on_close(runner.close)
    kind, length = _speculation(runner, draft, draft_length)
    encoded = _encode(runner, texts, raw)
    request = Request(
        max_new_tokens=max_new_tokens,
        draft_length=length,
        stop_tokens=frozenset(runner.manifest.model.eos_token_ids),
    )
    conditions = Conditions(
        name=runner.manifest.name,
        identity=runner.manifest.identity,
        on=runner.on,
        engines={
            role: runner.describe(role)
            for role in runner.roles
            if role == "target" or kind == "model"
        },
        draft=kind,
        draft_length=length,
        max_new_tokens=max_new_tokens,
        rounds=rounds,
        threads=threads,
        host=host.describe(),
        date=datetime.now(UTC).isoformat(" ", "seconds"),
        command=shlex.join(["speccompile", *sys.argv[1:]]),
    )
    with _progress() as report:
        result = run_bench(runner, encoded, request, kind, rounds=rounds, progress=report)
    figures = json.dumps(document(conditions, texts, result), indent=1, ensure_ascii=False)
    if json_file == "-":
        click.echo(figures)
    else:
        print_tables(Console(highlight=False), conditions, result)
    if json_file and json_file != "-":
        _write(Path(json_file), figures + "\n")
    if html:
        _write(html, render_report(conditions, texts, result))
    if result.differing and runner.placement is None:
        raise SpeccompileError(
            f"{artifact}: {len(result.differing)} of {len(texts)} outputs differ from plain "
            f"decoding (prompts {', '.join(str(index + 1) for index in result.differing)}); "
            "a speed-up with different words is none: choose another engine and build again"
        )


def print_tables(console: Console, conditions: Conditions, result: BenchResult) -> None:
    """The result for a terminal of 80 columns."""
    count = len({pair.prompt for pair in result.pairs})
    console.print(f"[b]{escape(conditions.name)}[/b]  sha256:{conditions.identity[:12]}")
    cpu = escape(conditions.host.cpu)
    console.print(f"{cpu}, {conditions.host.cores} cores; {count} prompts, greedy")
    if conditions.on != CPU:
        console.print(f"on {escape(conditions.on)}: {escape(conditions.engines['target'])}")
    console.print(f"speculative: {conditions.speculation}\n")
    console.print("[b]Medians over prompts[/b]", _speeds(result), "", sep="\n")
    if result.acceptance:
        title = "[b]Acceptance by position in the proposal[/b]"
        console.print(title, _acceptance(result), "", sep="\n")
    title = f"[b]Milliseconds of a step after {result.cost_context} tokens[/b]"
    console.print(title, _costs(result), "", sep="\n")
    if split := result.split:
        console.print(
            f"Decoding time: draft engine {split.draft:.0f} %, target engine (verify) "
            f"{split.target:.0f} %, other {split.other:.1f} %"
        )
    identical = f"Identical outputs: {count - len(result.differing)} of {count}"
    if result.identical or conditions.on == CPU:
        console.print(identical, style="green" if result.identical else "bold red")
    else:
        way_out = f"are the others ties? `speccompile verify --on {escape(conditions.on)}` tells"
        console.print(f"{identical}; {way_out}", style="yellow")


def document(conditions: Conditions, prompts: Sequence[str], result: BenchResult) -> dict[str, Any]:
    """All figures, as JSON. Spreads are over prompts; a prompt without one has no speed-up."""
    speedups = result.speedups
    return {
        "conditions": asdict(conditions),
        "identical": result.identical,
        "speedup": asdict(result.speedup),
        "request_speedup": asdict(result.request_speedup),
        "tokens_per_second": {
            "plain": asdict(result.plain_tokens_per_second),
            "speculative": asdict(result.speculative_tokens_per_second),
        },
        "first_token_seconds": {
            "plain": asdict(result.plain_first_token_seconds),
            "speculative": asdict(result.speculative_first_token_seconds),
        },
        "acceptance": result.acceptance,
        "tested_proposals": result.tested,
        "accepted_length": result.accepted_length,
        "decoding_percent": asdict(result.split) if result.split else None,
        "cost_ms": result.cost_ms,
        "cost_context": result.cost_context,
        "prompts": [
            {
                "prompt": prompt,
                "identical": index not in result.differing,
                "speedup": speedups.get(index),
            }
            for index, prompt in enumerate(prompts)
        ],
        "pairs": [
            {
                "prompt": pair.prompt,
                "plain": asdict(pair.plain),
                "speculative": asdict(pair.speculative),
            }
            for pair in result.pairs
        ],
    }


def _speculation(runner: Runner, draft: str | None, length: int | None) -> tuple[str, int]:
    """Who drafts and how much, or an error where that would be nothing."""
    defaults = runner.measurements.defaults
    kind = draft or defaults.draft
    if kind == "none":
        if length:
            raise click.UsageError("--draft-length needs a draft: give --draft model or ngram")
        return kind, 0
    length = length or defaults.draft_length
    if not length:
        raise click.UsageError("the artifact does not speculate by default: give --draft-length")
    return kind, length


def _encode(runner: Runner, texts: Sequence[str], raw: bool) -> list[list[int]]:
    """The prompts' tokens; one that is too long is refused here, not minutes later."""
    context = runner.context
    prompts: list[list[int]] = []
    for number, text in enumerate(texts, start=1):
        turn: Message = {"role": "user", "content": text}
        tokens = runner.encode_raw(text) if raw else runner.encode_chat([turn])
        if len(tokens) + 2 > context:
            raise RequestError(
                f"prompt {number} has {len(tokens)} tokens; that leaves too little of the context "
                f"of {context}: shorten it or leave it out"
            )
        prompts.append(tokens)
    return prompts


@contextmanager
def _progress() -> Generator[Report]:
    """A bar on standard error, where that is a terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description:16}"), BarColumn(), TimeElapsedColumn())
    disable = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=disable) as bar:
        task = bar.add_task("opening")

        def report(done: int, total: int, doing: str) -> None:
            bar.update(task, completed=done, total=total, description=doing)

        yield report


def _speeds(result: BenchResult) -> Table:
    plain, speculative = result.plain_tokens_per_second, result.speculative_tokens_per_second
    first, first_too = result.plain_first_token_seconds, result.speculative_first_token_seconds
    ratio, request = result.speedup, result.request_speedup
    table = _table("", "plain", "speculative", "ratio", "p10", "p90")
    for name, left, right, spread in (
        ("decoding, tokens/s", f"{plain.median:.1f}", f"{speculative.median:.1f}", ratio),
        ("whole request", "", "", request),
    ):
        ratios = (f"{value:.2f}x" for value in (spread.median, spread.p10, spread.p90))
        table.add_row(name, left, right, *ratios)
    table.add_row("first token, ms", f"{first.median * 1e3:.0f}", f"{first_too.median * 1e3:.0f}")
    table.add_row("tokens a round", "1.00", f"{result.accepted_length:.2f}")
    return table


def _acceptance(result: BenchResult) -> Table:
    positions = [str(at) for at in range(1, len(result.acceptance) + 1)]
    table = _table("position", *positions[:9])
    table.add_row("accepted", *(f"{share:.2f}" for share in result.acceptance[:9]))
    table.add_row("tested", *map(str, result.tested[:9]))
    return table


def _costs(result: BenchResult) -> Table:
    table = _table("rows", *map(str, COST_ROWS))
    for role, costs in result.cost_ms.items():
        table.add_row(role, *(f"{costs[rows]:.1f}" for rows in COST_ROWS))
    return table


def _table(first: str, *headings: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    table.add_column(first)
    for heading in headings:
        table.add_column(heading, justify="right")
    return table


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SpeccompileError(f"{path}: {error.strerror}") from error
