"""The rows, as tables and as a drawing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure
from rich.console import Console

from benchmarks.peers.peer import OURS
from benchmarks.peers.summary import Row
from speccompile.cli.tables import plain_table

__all__ = ["draw", "print_rows"]


_HEADINGS = (
    *("decoding", ">tokens/s", ">x plain", ">p10", ">p90", ">first", ">MB", ">own", ">ours"),
)
_LEGEND = (
    "x plain, p10, p90: over our plain decoding of the same prompt and round. first: ms to the "
    "first token. own, ours: of {prompts} prompts, those continued as the same peer, and as we, "
    "do plainly."
)


def print_rows(console: Console, rows: Sequence[Row], prompts: int) -> None:
    for weights in dict.fromkeys(row.weights for row in rows):
        console.print(f"{weights}, fastest first", style="bold")
        table = plain_table(*_HEADINGS)
        for row in rows:
            if row.weights == weights:
                table.add_row(*_cells(row), style="bold" if _is_ours(row) else "")
        console.print(table)
        console.print()
    console.print(_LEGEND.format(prompts=prompts), style="dim")


def _cells(row: Row) -> tuple[str, ...]:
    return (
        f"{row.peer}, {row.mode}",
        f"{row.tokens_per_second:.1f}",
        f"{row.ratio:.2f}",
        f"{row.ratio_p10:.2f}",
        f"{row.ratio_p90:.2f}",
        f"{row.first_seconds * 1e3:.0f}",
        f"{row.memory / 1e6:.0f}",
        f"{row.as_its_plain}",
        f"{row.as_ours}",
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
