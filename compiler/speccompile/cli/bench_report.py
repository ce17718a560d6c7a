"""A benchmark as one HTML file: it loads nothing, so it works offline, by mail and on paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from speccompile.cli.bench_conditions import Conditions
from speccompile.cli.bench_limit import limit_facts
from speccompile.compiler.report.drawing import (
    DRAFT,
    FAINT,
    INK,
    OTHER,
    TARGET,
    can_draw,
    chart,
    draw_acceptance,
)
from speccompile.compiler.report.page import render_page
from speccompile.runtime.bench.decomposition import Split
from speccompile.runtime.bench.pairs import COST_ROWS, BenchResult, Mode
from speccompile.runtime.bench.run import Spread, spread
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
    figures = result.ceilings, result.shares_of_ceiling
    speeds: dict[Mode, Spread] = {
        "plain": result.plain_tokens_per_second,
        "speculative": result.speculative_tokens_per_second,
    }
    return render_page(
        template,
        conditions=conditions,
        result=result,
        prompts=[
            (text, speedups.get(index), index not in result.differing)
            for index, text in enumerate(prompts)
        ],
        scale=max(1.0, *speedups.values()) * 1.02,
        splits=result.splits and _split_chart(result.splits),
        limit=limit_facts(result.ceiling) if result.ceiling else {},
        ceilings=[
            (mode, speed, *(spread(of(mode).values()) for of in figures))
            for mode, speed in speeds.items()
        ]
        if result.ceiling
        else [],
        acceptance=chart(
            "acceptance",
            (5, 2.9),
            lambda figure: draw_acceptance(figure, result.acceptance, result.tested),
        ),
        costs=chart("costs", (5, 2.9), lambda figure: _draw_costs(figure, result)),
    )


def _split_chart(splits: Mapping[Mode, Split]) -> str:
    return chart("split", (10, 0.85), lambda figure: _draw_splits(figure, splits))


def _draw_splits(figure: Figure, splits: Mapping[Mode, Split]) -> None:
    axes = figure.subplots()
    for place, split in enumerate(splits.values()):
        left = 0.0
        for percent, color in (
            (split.draft, DRAFT),
            (split.verify, TARGET),
            (split.assembly, OTHER),
            (split.scheduling, FAINT),
        ):
            axes.barh(place, percent, left=left, color=color, edgecolor="white", linewidth=1.5)
            if percent >= 4:
                ink = "white" if color in (TARGET, FAINT) else INK
                axes.text(
                    left + percent / 2,
                    place,
                    f"{percent:.0f} %",
                    color=ink,
                    ha="center",
                    va="center",
                )
            left += percent
    axes.set_yticks(range(len(splits)), list(splits))
    axes.set_ylim(len(splits) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.set_xticks([])
    axes.spines[:].set_visible(False)
    axes.tick_params(axis="y", length=0, labelcolor=INK)


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
