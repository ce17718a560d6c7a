"""What a benchmark of pairs found: tables for a terminal, and all figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from speccompile.cli.bench_conditions import Conditions, print_conditions
from speccompile.cli.bench_limit import limit_document, limit_facts
from speccompile.cli.tables import facts_table
from speccompile.runtime.bench.decomposition import Split
from speccompile.runtime.bench.pairs import COST_ROWS, MODES, BenchResult, Mode
from speccompile.runtime.bench.run import Run, spread
from speccompile.runtime.placement import CPU

__all__ = ["pairs_document", "print_pairs", "run_document"]


def print_pairs(console: Console, conditions: Conditions, result: BenchResult) -> None:
    """The result for a terminal of 80 columns."""
    count = len({pair.prompt for pair in result.pairs})
    print_conditions(console, conditions, count)
    console.print("[b]Medians over prompts[/b]", _speeds(result), "", sep="\n")
    if result.acceptance:
        title = "[b]Acceptance by position in the proposal[/b]"
        console.print(title, _acceptance(result), "", sep="\n")
    title = f"[b]Milliseconds of a step after {result.cost_context} tokens[/b]"
    console.print(title, _costs(result), "", sep="\n")
    if splits := result.splits:
        title = "[b]Percent of decoding, by the wall clock[/b]"
        console.print(title, _splits(splits), "", sep="\n")
    if result.ceiling:
        title = "[b]What the ceiling follows from[/b]"
        console.print(title, facts_table(limit_facts(result.ceiling)), "", sep="\n")
    identical = f"Identical outputs: {count - len(result.differing)} of {count}"
    if result.identical or conditions.on == CPU:
        console.print(identical, style="green" if result.identical else "bold red")
    else:
        way_out = f"are the others ties? `speccompile verify --on {escape(conditions.on)}` tells"
        console.print(f"{identical}; {way_out}", style="yellow")


def pairs_document(
    conditions: Conditions, prompts: Sequence[str], result: BenchResult
) -> dict[str, Any]:
    """All figures, as JSON. Spreads are over prompts; a prompt without one has no speed-up."""
    speedups = result.speedups
    overheads = {mode: result.overheads(mode) for mode in MODES}
    shares = {mode: result.shares_of_ceiling(mode) for mode in MODES}
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
        "decoding_percent": result.splits
        and {mode: asdict(split) for mode, split in result.splits.items()},
        **_ceiling_document(result),
        "cost_ms": result.cost_ms,
        "cost_context": result.cost_context,
        "prompts": [
            {
                "prompt": prompt,
                "identical": index not in result.differing,
                "speedup": speedups.get(index),
                "share_of_ceiling": {mode: shares[mode].get(index) for mode in MODES},
                "overhead_percent": {mode: overheads[mode].get(index) for mode in MODES},
            }
            for index, prompt in enumerate(prompts)
        ],
        "pairs": [
            {
                "prompt": pair.prompt,
                "plain": run_document(pair.plain),
                "speculative": run_document(pair.speculative),
            }
            for pair in result.pairs
        ],
    }


def _ceiling_document(result: BenchResult) -> dict[str, Any]:
    document = limit_document(result.ceiling)
    for name, figures in (
        ("ceiling_tokens_per_second", result.ceilings),
        ("share_of_ceiling", result.shares_of_ceiling),
    ):
        document[name] = result.ceiling and {
            mode: asdict(spread(figures(mode).values())) for mode in MODES
        }
    return document


def run_document(run: Run) -> dict[str, Any]:
    """The figures of one generation."""
    return {**vars(run), "statistics": vars(run.statistics)}


def _speeds(result: BenchResult) -> Table:
    plain, speculative = result.plain_tokens_per_second, result.speculative_tokens_per_second
    first, first_too = result.plain_first_token_seconds, result.speculative_first_token_seconds
    ratio, request = result.speedup, result.request_speedup
    table = _table("", "plain", "speculative", "ratio", "p10", "p90")
    for name, left, right, found in (
        ("decoding, tokens/s", f"{plain.median:.1f}", f"{speculative.median:.1f}", ratio),
        ("whole request", "", "", request),
    ):
        ratios = (f"{value:.2f}x" for value in (found.median, found.p10, found.p90))
        table.add_row(name, left, right, *ratios)
    table.add_row("first token, ms", f"{first.median * 1e3:.0f}", f"{first_too.median * 1e3:.0f}")
    table.add_row("tokens a round", "1.00", f"{result.accepted_length:.2f}")
    if result.ceiling:
        ceilings = (spread(result.ceilings(mode).values()).median for mode in MODES)
        table.add_row("ceiling, tokens/s", *(f"{ceiling:.1f}" for ceiling in ceilings))
        shares = (spread(result.shares_of_ceiling(mode).values()).median for mode in MODES)
        table.add_row("share of the ceiling", *(f"{100 * share:.0f} %" for share in shares))
    return table


def _acceptance(result: BenchResult) -> Table:
    positions = [str(at) for at in range(1, len(result.acceptance) + 1)]
    table = _table("position", *positions[:9])
    table.add_row("accepted", *(f"{share:.2f}" for share in result.acceptance[:9]))
    table.add_row("tested", *map(str, result.tested[:9]))
    return table


def _splits(splits: Mapping[Mode, Split]) -> Table:
    table = _table("", "draft", "verify", "assembly", "scheduling", "no engine runs")
    for mode, split in splits.items():
        shares = split.draft, split.verify, split.assembly, split.scheduling, split.overhead
        table.add_row(mode, *(f"{share:.1f}" for share in shares))
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
