"""What a comparison of ways of drafting found: tables for a terminal, and all figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.markup import escape

from speccompile.cli.bench_conditions import Conditions, print_conditions
from speccompile.cli.bench_limit import limit_document, limit_facts
from speccompile.cli.bench_pairs import run_document
from speccompile.cli.prompts import Prompt
from speccompile.cli.tables import facts_table, plain_table
from speccompile.runtime.bench.sweep import Sweep
from speccompile.runtime.bench.tables import Row, Table

__all__ = ["percent", "print_sweep", "sweep_document"]


def print_sweep(
    console: Console, conditions: Conditions, sweep: Sweep, tables: Sequence[Table]
) -> None:
    """The result for a terminal of 80 columns."""
    print_conditions(console, conditions, sweep.measured)
    for table in tables:
        _print_table(console, table)
    everything = tables[0]
    for title, shares in (
        ("Rounds shaped by policies", {row.name: row.policies for row in everything.rows}),
        ("Accepted tokens by drafter", {row.name: row.sources for row in everything.rows}),
    ):
        _print_shares(console, title, shares)
    console.print(
        "limit: of what memory allows; length: tokens a round; accept: of the proposals tested. "
        "Speed-ups, of decoding: over plain, medians over prompts; over the best K there and the "
        "fixed one, of all tokens. "
        "Controllers go on learning from prompt to prompt.\n"
    )
    if sweep.ceiling:
        title = "[b]What the limit follows from[/b]"
        console.print(title, facts_table(limit_facts(sweep.ceiling)), "", sep="\n")
    for name, prompts in sweep.differing.items():
        numbers = ", ".join(str(index + 1) for index in prompts)
        console.print(
            f"{escape(name)}: other outputs than plain decoding's, prompts {numbers}",
            style="bold red",
        )
    if not sweep.differing:
        console.print(
            f"Identical outputs: all variants, {sweep.measured} of {sweep.measured}", style="green"
        )


def sweep_document(
    conditions: Conditions, prompts: Sequence[Prompt], sweep: Sweep, tables: Sequence[Table]
) -> dict[str, Any]:
    """All figures, as JSON; only prompts that were measured are in it."""
    return {
        "conditions": asdict(conditions),
        "identical": not sweep.differing,
        "differing": sweep.differing,
        "fixed": sweep.lineup.fixed,
        "adaptive": sweep.lineup.adaptive,
        "variants": {variant.name: variant.draft for variant in sweep.lineup.variants},
        **limit_document(sweep.ceiling),
        "tables": [asdict(table) for table in tables],
        "prompts": [asdict(prompt) for prompt in prompts[: sweep.measured]],
        "trials": [
            {
                "prompt": trial.prompt,
                "runs": {name: run_document(run) for name, run in trial.runs.items()},
            }
            for trial in sweep.trials
        ],
    }


def percent(shares: Mapping[str, float]) -> str:
    """Shares in words, the largest first."""
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return ", ".join(f"{name} {100 * share:.0f} %" for name, share in ordered)


def _print_table(console: Console, table: Table) -> None:
    best = f", best K is {table.static.removeprefix('K=')}" if table.static else ""
    count = "1 prompt" if table.prompts == 1 else f"{table.prompts} prompts"
    console.print(f"[b]{escape(table.category)}[/b]  {count}{best}")
    headings = ("tok/s", "limit", "length", "accept", "plain", "p10-p90", "best K", "fixed")
    grid = plain_table("", *(f">{heading}" for heading in headings))
    for row in table.rows:
        grid.add_row(escape(row.name), *_cells(row))
    console.print(grid, "")


def _cells(row: Row) -> list[str]:
    ratio = row.to_plain
    return [
        f"{row.tokens_per_second:.1f}",
        "" if row.to_ceiling is None else f"{100 * row.to_ceiling:.0f}%",
        f"{row.accepted_length:.2f}",
        "" if row.acceptance is None else f"{row.acceptance:.2f}",
        f"{ratio.median:.2f}x",
        f"{ratio.p10:.2f}-{ratio.p90:.2f}",
        "" if row.to_static is None else f"{row.to_static:.2f}x",
        f"{row.to_fixed:.2f}x",
    ]


def _print_shares(console: Console, title: str, shares: Mapping[str, Mapping[str, float]]) -> None:
    if facts := {name: percent(own) for name, own in shares.items() if own}:
        console.print(f"[b]{title}[/b]", facts_table(facts), "", sep="\n")
