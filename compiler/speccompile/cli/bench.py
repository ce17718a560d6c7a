"""`speccompile bench`: ways of decoding, measured against one another on this host."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from speccompile.cli.bench_against import against_options, compare, read_earlier
from speccompile.cli.bench_conditions import Conditions
from speccompile.cli.bench_drafting import drafters, own_draft, speculation
from speccompile.cli.bench_pairs import pairs_document, print_pairs
from speccompile.cli.bench_progress import bench_progress
from speccompile.cli.bench_report import render_report, require_drawing
from speccompile.cli.bench_sweep import print_sweep, sweep_document
from speccompile.cli.bench_sweep_report import render_sweep
from speccompile.cli.options import artifact_argument, draft_option, on_options, threads_option
from speccompile.cli.prompts import SHIPPED_SETS, Prompt, encode, read_sets, select
from speccompile.runtime import host
from speccompile.runtime.bench.ceiling import step_reads
from speccompile.runtime.bench.pairs import run_bench
from speccompile.runtime.bench.sweep import run_sweep
from speccompile.runtime.bench.tables import make_tables
from speccompile.runtime.bench.variants import FAMILIES, line_up
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.runner import DRAFT_LENGTH, Runner
from speccompile.runtime.session import Request

__all__ = ["command"]


def _words(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    """Reads a list such as a,b."""
    return tuple(word.strip() for word in (value or "").split(",") if word.strip())


def _families(ctx: click.Context, param: click.Parameter, value: str | None) -> tuple[str, ...]:
    words = _words(ctx, param, value)
    for word in words:
        if word not in (*FAMILIES, "all"):
            raise click.BadParameter(f"{word!r} is none of all, {', '.join(FAMILIES)}", ctx, param)
    return FAMILIES if "all" in words else words


@click.command("bench")
@artifact_argument
@click.option(
    "--prompts",
    "sources",
    multiple=True,
    metavar="FILE|builtin:NAME",
    help="A set of prompts, .txt, .jsonl or .jsonl.gz, or one that ships: "
    f"{', '.join(SHIPPED_SETS)}. Give it again for a mixture.",
)
@click.option(
    "--categories",
    callback=_words,
    metavar="LIST",
    help="Only these categories or sets, such as a,b.",
)
@click.option("--per-category", type=click.IntRange(min=1), help="Take only so many of each.")
@click.option("--limit", type=click.IntRange(min=1), help="Take only so many prompts.")
@click.option("-n", "--max-new-tokens", type=click.IntRange(min=2), default=128, show_default=True)
@draft_option("Who proposes, by default the artifact's own")
@click.option("--draft-length", type=click.IntRange(min=1), help="Most proposals a round.")
@click.option(
    "--variants",
    "families",
    callback=_families,
    metavar="LIST",
    help=f"Compare ways of drafting instead: all, or some of {', '.join(FAMILIES)}.",
)
@click.option("--raw", is_flag=True, help="Continue the prompts as they are, no chat template.")
@click.option("--rounds", type=click.IntRange(min=1), default=1, help="Measure so many times.")
@click.option(
    "--budget",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="Stop when no more prompts fit.",
)
@click.option("--json", "json_file", metavar="FILE", help="Write the figures; - prints them alone.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a report for a browser.")
@against_options
@on_options
@threads_option
@click.pass_context
def command(
    ctx: click.Context,
    artifact: Path,
    sources: tuple[str, ...],
    categories: tuple[str, ...],
    per_category: int | None,
    limit: int | None,
    max_new_tokens: int,
    draft: str | None,
    draft_length: int | None,
    families: tuple[str, ...],
    raw: bool,
    rounds: int,
    budget: float | None,
    json_file: str | None,
    html: Path | None,
    against: Path | None,
    tolerance: float,
    on: str,
    context: int | None,
    threads: int,
) -> None:
    """Compare speculative with plain decoding on the same engine of ARTIFACT.

    Every prompt is decoded greedily both ways, one right after the other, from empty caches. The
    ratios are medians over prompts. Exits with 1 if any output differs, but on a GPU, where ties
    are decided by rounding: `speccompile verify` tells them from faults.

    On a CPU, the ceiling is what the bandwidth of its memory, measured before and after, allows for
    the weights and cached rows that were read. With --against it also exits with 1 where speed-up,
    share of the ceiling, or time in which no engine runs got worse.

    With --variants every prompt is decoded in all ways that are compared: depths are chains of one
    length, trees of one shape, drafters each alone and together, policies what follows a rejection,
    controller the one that adapts. There is a table for every set and category of prompts; ratios
    to the best length and to the artifact's own are of all decoding there.
    """
    if html:
        require_drawing()
    if against and families:
        raise click.UsageError("--against compares benchmarks without --variants")
    earlier = read_earlier(against) if against else None
    prompts = select(read_sets(sources), categories=categories, most=per_category)[:limit]
    runner = Runner.open(artifact, threads=threads, on=on, context=context)
    ctx.call_on_close(runner.close)
    choose = own_draft if families else speculation
    drafting = choose(runner, draft, draft_length)
    job = _Job(
        runner,
        prompts,
        encode(runner, [prompt.text for prompt in prompts], raw=raw),
        Request(
            max_new_tokens=max_new_tokens,
            draft_length=None if families else drafting.length,
            stop_tokens=frozenset(runner.manifest.model.eos_token_ids),
        ),
        Conditions(
            name=runner.manifest.name,
            identity=runner.manifest.identity,
            on=runner.on,
            engines={
                role: runner.describe(role)
                for role in runner.roles
                if role in ("target", *runner.models(drafting.kind)) or "drafters" in families
            },
            draft=drafting.kind,
            draft_length=drafting.length,
            speculation=drafting.words,
            prompts=len(prompts),
            max_new_tokens=max_new_tokens,
            rounds=rounds,
            threads=threads,
            host=host.describe(),
            date=datetime.now(UTC).isoformat(" ", "seconds"),
            command=shlex.join(["speccompile", *sys.argv[1:]]),
            raw=raw,
        ),
        budget,
    )
    if earlier:
        earlier.check(job.conditions, [prompt.text for prompt in prompts])
    found = _sweep(job, families) if families else _pairs(job)
    figures = json.dumps(found.document, indent=1, ensure_ascii=False)
    console = None if json_file == "-" else Console(highlight=False)
    if console:
        found.show(console)
    else:
        click.echo(figures)
    if json_file and json_file != "-":
        _write(Path(json_file), figures + "\n")
    if html:
        _write(html, found.render())
    if found.differing and runner.placement is None:
        numbers = ", ".join(str(index + 1) for index in found.differing)
        raise SpeccompileError(
            f"{artifact}: {len(found.differing)} of {found.measured} outputs differ from plain "
            f"decoding (prompts {numbers}); a speed-up with different words is none: choose "
            "another engine and build again"
        )
    if earlier:
        compare(earlier, found.document, tolerance / 100, console)


@dataclass(frozen=True)
class _Job:
    """What is to be measured."""

    runner: Runner
    prompts: Sequence[Prompt]
    encoded: Sequence[Sequence[int]]
    request: Request
    conditions: Conditions
    budget: float | None


@dataclass(frozen=True)
class _Found:
    """What was measured, ready to be given out; `differing` are the prompts with other outputs."""

    measured: int
    differing: Sequence[int]
    document: Mapping[str, Any]
    show: Callable[[Console], None]
    render: Callable[[], str]


def _pairs(job: _Job) -> _Found:
    with bench_progress() as report:
        result = run_bench(
            job.runner,
            job.encoded,
            job.request,
            job.conditions.draft,
            rounds=job.conditions.rounds,
            budget=job.budget,
            progress=report,
            reads=step_reads(job.runner, [job.conditions.draft]),
        )
    measured = len({pair.prompt for pair in result.pairs})
    texts = [prompt.text for prompt in job.prompts[:measured]]
    return _Found(
        measured,
        result.differing,
        pairs_document(job.conditions, texts, result),
        lambda console: print_pairs(console, job.conditions, result),
        lambda: render_report(job.conditions, texts, result),
    )


def _sweep(job: _Job, families: Sequence[str]) -> _Found:
    runner, conditions = job.runner, job.conditions
    lineup = line_up(
        runner,
        families,
        draft=conditions.draft,
        length=conditions.draft_length or DRAFT_LENGTH,
        drafters=drafters(runner),
        trees=runner.takes_trees,
    )
    with bench_progress() as report:
        sweep = run_sweep(
            runner,
            job.encoded,
            job.request,
            lineup,
            rounds=conditions.rounds,
            budget=job.budget,
            progress=report,
            reads=step_reads(runner, {variant.draft for variant in lineup.variants}),
        )
    tables = make_tables(sweep, [prompt.labels for prompt in job.prompts])
    differing = {prompt for prompts in sweep.differing.values() for prompt in prompts}
    return _Found(
        sweep.measured,
        sorted(differing),
        sweep_document(conditions, job.prompts, sweep, tables),
        lambda console: print_sweep(console, conditions, sweep, tables),
        lambda: render_sweep(conditions, sweep, tables),
    )


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise SpeccompileError(f"{path}: {error.strerror}") from error
