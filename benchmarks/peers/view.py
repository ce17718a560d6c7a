"""The rows, as tables and as a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks.peers.peer import OURS
from benchmarks.peers.summary import Row

__all__ = ["draw", "print_rows"]


def print_rows(console: Console, rows: Sequence[Row], prompts: int) -> None:
    for weights in dict.fromkeys(row.weights for row in rows):
        table = Table(title=f"{weights}, fastest first", title_justify="left")
        for name in ("", "decoding"):
            table.add_column(name)
        for name in (
            "tokens/s",
            "over our plain",
            "p10 to p90",
            "first token",
            "memory",
            "as its plain",
            "as ours",
            "begins as ours",
        ):
            table.add_column(name, justify="right")
        for row in rows:
            if row.weights == weights:
                table.add_row(*_cells(row, prompts), style="bold" if _is_ours(row) else "")
        console.print(table)


def _cells(row: Row, prompts: int) -> tuple[str, ...]:
    return (
        row.peer,
        row.mode,
        f"{row.tokens_per_second:.1f}",
        f"{row.ratio:.2f}x",
        f"{row.ratio_p10:.2f} to {row.ratio_p90:.2f}",
        f"{row.first_seconds * 1e3:.0f} ms",
        f"{row.memory / 1e6:.0f} MB",
        f"{row.as_its_plain} of {prompts}",
        f"{row.as_ours} of {prompts}",
        f"{row.begins_as_ours:.0%}",
    )


def _is_ours(row: Row) -> bool:
    return row.peer == OURS.name


def draw(rows: Sequence[Row], path: Path, title: str) -> None:
    """Bars of tokens/s, a panel for each class of weights, as SVG, PNG or PDF by the name's end."""
    classes = list(dict.fromkeys(row.weights for row in rows))
    figure = Figure(figsize=(9, 1.2 + 0.32 * len(rows)), layout="constrained")
    heights = [sum(row.weights == weights for row in rows) for weights in classes]
    axes = figure.subplots(len(classes), 1, sharex=True, squeeze=False, height_ratios=heights)
    for panel, weights in zip(axes[:, 0], classes, strict=True):
        own = [row for row in rows if row.weights == weights][::-1]
        bars = panel.barh(
            [f"{row.peer}, {row.mode}" for row in own],
            [row.tokens_per_second for row in own],
            color=["#1f5fa8" if _is_ours(row) else "#b8bec6" for row in own],
        )
        panel.bar_label(bars, [f" {row.tokens_per_second:.1f}" for row in own], fontsize=8)
        panel.set_title(weights, loc="left", fontsize=10)
        panel.spines[["top", "right"]].set_visible(False)
        panel.margins(x=0.08)
    axes[-1, 0].set_xlabel("tokens/s, median")
    figure.suptitle(title, fontsize=11)
    figure.savefig(path)
