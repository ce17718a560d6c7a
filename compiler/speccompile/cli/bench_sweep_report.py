"""A comparison of ways of drafting as one HTML file, which loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from speccompile.cli.bench_conditions import Conditions
from speccompile.cli.bench_limit import limit_facts
from speccompile.cli.bench_sweep import percent
from speccompile.compiler.report.drawing import DRAFT, INK, OTHER, TARGET, chart
from speccompile.compiler.report.page import render_page
from speccompile.runtime.bench.sweep import Sweep
from speccompile.runtime.bench.tables import Table

if TYPE_CHECKING:  # optional, and slow to import: only a report needs it
    from matplotlib.figure import Figure

__all__ = ["render_sweep"]


def render_sweep(conditions: Conditions, sweep: Sweep, tables: Sequence[Table]) -> str:
    """The page. All text from outside is escaped; only our own drawings are put in as they are."""
    template = files("speccompile.cli").joinpath("bench_sweep.html").read_text("utf-8")
    bars = _bars(sweep, tables)
    return render_page(
        template,
        conditions=conditions,
        sweep=sweep,
        tables=tables,
        first=tables[0].row(sweep.lineup.adaptive or sweep.lineup.fixed),
        bars=[(name, color) for name, color, _ in bars],
        ratios=chart(
            "ratios",
            (10, 0.7 + len(tables) * (0.2 + 0.16 * len(bars))),
            lambda figure: _draw_ratios(figure, tables, bars),
        ),
        percent=percent,
        limit=limit_facts(sweep.ceiling) if sweep.ceiling else {},
        scale=max(row.to_plain.median for table in tables for row in table.rows) * 1.02,
    )


_Bars = Sequence[tuple[str, str, Sequence[float]]]
"""What each bar of a group is, its colour, and its lengths."""


def _bars(sweep: Sweep, tables: Sequence[Table]) -> _Bars:
    """How much faster than plain decoding in each table."""

    def ratios(names: Sequence[str]) -> list[float]:
        pairs = zip(tables, names, strict=True)
        return [table.row(name).to_plain.median for table, name in pairs]

    lineup, count = sweep.lineup, len(tables)
    bars: list[tuple[str, str, Sequence[float]]] = [
        (f"fixed, {lineup.fixed}", OTHER, ratios([lineup.fixed] * count))
    ]
    if best := [table.static for table in tables if table.static]:
        bars.append(("best K of each category", DRAFT, ratios(best)))
    if lineup.adaptive:
        bars.append(("adaptive controller", TARGET, ratios([lineup.adaptive] * count)))
    return bars


def _draw_ratios(figure: Figure, tables: Sequence[Table], bars: _Bars) -> None:
    axes = figure.subplots()
    height = 0.8 / len(bars)
    for number, (_, color, ratios) in enumerate(bars):
        places = [group + (number - (len(bars) - 1) / 2) * height for group in range(len(tables))]
        drawn = axes.barh(places, ratios, height=height * 0.88, color=color)
        axes.bar_label(drawn, fmt="%.2f", color=INK, padding=3, fontsize=7.5)
    axes.axvline(1.0, color=INK, linewidth=0.8)
    axes.set_yticks(range(len(tables)), [table.category for table in tables])
    axes.set_ylim(len(tables) - 0.45, -0.55)
    axes.set_xlabel("speed-up over plain decoding, median over prompts")
    axes.grid(axis="x")
    axes.tick_params(axis="y", length=0, labelcolor=INK)
