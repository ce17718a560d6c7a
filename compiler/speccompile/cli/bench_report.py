"""A benchmark as one HTML file: it loads nothing, so it works offline, by mail and on paper."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from speccompile.cli.bench_conditions import Conditions
from speccompile.compiler.report.drawing import (
    DRAFT,
    INK,
    OTHER,
    TARGET,
    can_draw,
    chart,
    draw_acceptance,
)
from speccompile.compiler.report.page import render_page
from speccompile.runtime.bench.pairs import COST_ROWS, BenchResult, Split
from speccompile.runtime.errors import SpeccompileError

if TYPE_CHECKING:  # optional, and slow to import: only a report needs it
    from matplotlib.figure import Figure

__all__ = ["render_report", "require_drawing"]


def require_drawing() -> None:
    """Raise SpeccompileError where the library that draws the charts is not installed."""
    if not can_draw():
        raise SpeccompileError(
            "--html needs matplotlib to draw; install it with: pip install 'speccompile[report]'"
        )


def render_report(conditions: Conditions, prompts: Sequence[str], result: BenchResult) -> str:
    """The page. All text from outside is escaped; only our own drawings are put in as they are."""
    template = files("speccompile.cli").joinpath("bench_report.html").read_text("utf-8")
    speedups = result.speedups
    return render_page(
        template,
        conditions=conditions,
        result=result,
        prompts=[
            (text, speedups.get(index), index not in result.differing)
            for index, text in enumerate(prompts)
        ],
        scale=max(1.0, *speedups.values()) * 1.02,
        split=result.split and _split_chart(result.split),
        acceptance=chart(
            "acceptance",
            (5, 2.9),
            lambda figure: draw_acceptance(figure, result.acceptance, result.tested),
        ),
        costs=chart("costs", (5, 2.9), lambda figure: _draw_costs(figure, result)),
    )


def _split_chart(split: Split) -> str:
    return chart("split", (10, 0.5), lambda figure: _draw_split(figure, split))


def _draw_split(figure: Figure, split: Split) -> None:
    axes = figure.subplots()
    left = 0.0
    for percent, color in ((split.draft, DRAFT), (split.target, TARGET), (split.other, OTHER)):
        axes.barh(0, percent, left=left, color=color, edgecolor="white", linewidth=1.5)
        if percent >= 4:
            ink = INK if color == DRAFT else "white"
            axes.text(
                left + percent / 2, 0, f"{percent:.0f} %", color=ink, ha="center", va="center"
            )
        left += percent
    axes.set_xlim(0, 100)
    axes.margins(0)
    axes.set_axis_off()


def _draw_costs(figure: Figure, result: BenchResult) -> None:
    axes = figure.subplots()
    colors = {"target": TARGET, "draft": DRAFT}
    for role, costs in result.cost_ms.items():
        rows, milliseconds = list(costs), list(costs.values())
        color = colors.get(role, OTHER)
        axes.plot(rows, milliseconds, "o-", label=role, color=color, linewidth=2, markersize=4)
    axes.set_xlabel("rows in one step")
    axes.set_ylabel("milliseconds")
    axes.set_xticks(COST_ROWS)
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="y", nbins=6)
    axes.grid(axis="y")
    axes.legend(frameon=False, loc="lower right")
