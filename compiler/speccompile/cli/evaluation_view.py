"""What an evaluation of drafts found: tables for a terminal, and all figures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from speccompile.cli.tables import plain_table, printable
from speccompile.compiler.drafts.acceptance import Acceptance, Point
from speccompile.compiler.drafts.evaluation import Evaluation
from speccompile.compiler.drafts.figures import LONGEST, Figures

__all__ = ["evaluation_document", "held_out_of", "labels", "print_evaluations"]

_CURVE_ROWS = 6


def print_evaluations(console: Console, evaluations: Sequence[Evaluation]) -> None:
    """The figures for a terminal of 80 columns."""
    console.print("[b]Stood, by position in a chain; laws in common (1 - TV)[/b]")
    console.print(_acceptance(evaluations), "", sep="\n")
    console.print("[b]Tokens a round, by draft length; of the best tree of at most 8 nodes[/b]")
    console.print(_tokens(evaluations), "", sep="\n")
    console.print("[b]A draft's step over its target's, and the speed-up that none exceeds[/b]")
    console.print(_costs(evaluations), "", sep="\n")
    console.print("[b]Speed-up over plain decoding[/b]")
    console.print(_speedups(evaluations), "", sep="\n")
    for name, each in labels(evaluations).items():
        if held_out := held_out_of(each):
            console.print(f"[b]{escape(printable(name))}: held out when it was made[/b]")
            console.print(_held_out(held_out), "", sep="\n")
        if each.training and each.training.curve:
            console.print(f"[b]{escape(printable(name))}: what it learned[/b]")
            console.print(_curve(each.training.curve), "", sep="\n")


def evaluation_document(
    conditions: Mapping[str, Any], evaluations: Sequence[Evaluation]
) -> dict[str, Any]:
    """All figures, as JSON."""
    return {
        "conditions": dict(conditions),
        "drafts": [
            {**asdict(each), "cost_ratio": each.costs.ratio, "bound": 1.0 / each.costs.ratio}
            for each in evaluations
        ],
    }


def labels(evaluations: Sequence[Evaluation]) -> dict[str, Evaluation]:
    """Each by as much of the end of its path as tells it from the others."""
    paths = [Path(each.name).parts for each in evaluations]
    names: list[str] = []
    for count in range(1, max(map(len, paths)) + 1):
        names = [str(Path(*parts[-count:])) for parts in paths]
        if len(set(names)) == len(names):
            break
    return dict(zip(names, evaluations, strict=True))


def held_out_of(evaluation: Evaluation) -> dict[str, Acceptance]:
    """How far a draft stood when it was made, before INT8 and after, by the row of a table."""
    found: dict[str, Acceptance] = {}
    if training := evaluation.training:
        for kind, figures in training.held_out.items():
            found[f"{kind}, FP32"] = figures
            if kind in training.held_out_int8:
                found[f"{kind}, INT8"] = training.held_out_int8[kind]
    return found


def _rows(
    evaluations: Sequence[Evaluation],
) -> Iterator[tuple[list[str], Evaluation, str, Figures]]:
    """Every domain of every draft, with the beginning of its row."""
    for name, each in labels(evaluations).items():
        for number, (domain, figures) in enumerate(each.domains.items()):
            first = escape(printable(name)) if number == 0 else ""
            yield [first, escape(printable(domain))], each, domain, figures


def _acceptance(evaluations: Sequence[Evaluation]) -> Table:
    depth = max(len(figures.positions) for *_, figures in _rows(evaluations))
    positions = (f">{at + 1}" for at in range(depth))
    table = plain_table("draft", "domain", ">texts", ">tokens", *positions, ">1 - TV")
    for names, _, _, figures in _rows(evaluations):
        shares = (f"{share:.2f}" for share in figures.positions)
        counts = (str(figures.texts), f"{figures.tokens:,}")
        table.add_row(*names, *counts, *shares, f"{figures.overlap:.2f}")
    return table


def _tokens(evaluations: Sequence[Evaluation]) -> Table:
    lengths = (f">{length}" for length in range(1, LONGEST + 1))
    table = plain_table("draft", "domain", *lengths, ">tree")
    for names, _, _, figures in _rows(evaluations):
        tokens = (f"{each:.2f}" for each in figures.tokens_a_round[1:])
        tree = f"{figures.tree.tokens_a_round:.2f}" if figures.tree else ""
        table.add_row(*names, *tokens, tree)
    return table


def _costs(evaluations: Sequence[Evaluation]) -> Table:
    table = plain_table("draft", ">draft, ms", ">target, ms", ">ratio", ">at most", "")
    for name, each in labels(evaluations).items():
        costs, measured = each.costs, each.costs.measured
        milliseconds = (
            f"{side[1]:.2f}" if measured else "" for side in (costs.draft, costs.target)
        )
        how = "measured" if measured else "predicted by weights"
        ratio = f"{costs.ratio:.3f}"
        table.add_row(escape(printable(name)), *milliseconds, ratio, f"{1 / costs.ratio:.1f}x", how)
    return table


def _speedups(evaluations: Sequence[Evaluation]) -> Table:
    headings = (">best K", ">predicted", ">tree", ">measured", ">p10", ">p90")
    table = plain_table("draft", "domain", *headings)
    for names, each, domain, figures in _rows(evaluations):
        predicted = f"{max(figures.speedups):.2f}x"
        tree = f"{figures.tree.speedup:.2f}x" if figures.tree else ""
        spread = each.measured.speedups.get(domain) if each.measured else None
        found = (spread.median, spread.p10, spread.p90) if spread else ()
        measured = [f"{value:.2f}x" for value in found] or [""] * 3
        table.add_row(*names, str(figures.best_length), predicted, tree, *measured)
    return table


def _held_out(held_out: Mapping[str, Acceptance]) -> Table:
    depth = max(len(figures.positions) for figures in held_out.values())
    table = plain_table("", *(f">{at + 1}" for at in range(depth)), ">tokens a round")
    for name, figures in held_out.items():
        shares = (f"{share:.3f}" for share in figures.positions)
        table.add_row(escape(printable(name)), *shares, f"{figures.tokens_a_round:.2f}")
    return table


def _curve(curve: Sequence[Point]) -> Table:
    """Some of the points, the last one among them."""
    table = plain_table(">tokens", ">loss", ">overlap", ">first stood", ">tokens a round")
    stride = -(-len(curve) // _CURVE_ROWS)
    for point in curve[::-1][::stride][::-1]:
        figures = (point.loss, point.overlap, point.positions[0], point.tokens_a_round)
        table.add_row(f"{point.tokens:,}", *(f"{value:.2f}" for value in figures))
    return table
