"""A comparison of precisions as one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING

from speccompile.cli.comparison_view import Column, View
from speccompile.compiler.report.drawing import DRAFT, INK, LINE, OTHER, TARGET, chart
from speccompile.compiler.report.page import render_page
from speccompile.runtime.host import Host

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Circumstances", "render_comparison"]

_COLORS = {"target": TARGET, "draft": DRAFT}
_LEAST = 1e-7
"""Nats of KL divergence: what is less is rounding, and is drawn here."""


@dataclass(frozen=True)
class Circumstances:
    """Where, when and by which command a comparison was made."""

    host: Host
    date: str
    command: str


def render_comparison(name: str, parts: Sequence[View], circumstances: Circumstances) -> str:
    """The page on the recipe called `name`."""
    template = files("speccompile.cli").joinpath("comparison_report.html").read_text("utf-8")
    charts = [chart(part.role, (8.6, 3.4), partial(_draw, part)) for part in parts]
    return render_page(
        template, name=name, parts=list(zip(parts, charts, strict=True)), at=circumstances
    )


def _draw(part: View, figure: Figure) -> None:
    """Speed-up against KL divergence: up and to the left is better."""
    axes = figure.subplots()
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:.0e}")
    for index, column in enumerate(part.columns):
        color = _COLORS[part.role] if column.chosen else OTHER
        axes.plot(_shown(column), column.speedup, "o", color=color, markersize=7)
        left = index % 2  # neighbours, such as fp32 and fp16, are often at the same place
        axes.annotate(
            column.precision,
            (_shown(column), column.speedup),
            (-7 if left else 7, 5),
            textcoords="offset points",
            color=INK,
            fontweight="bold" if column.chosen else "normal",
            ha="right" if left else "left",
        )
    axes.axhline(1.0, color=INK, linewidth=1)
    axes.set_xlim(_LEAST / 4, 10 * max(map(_shown, part.columns)))
    axes.set_ylim(0, 1.2 * max(1.0, *(column.speedup for column in part.columns)))
    axes.set_xlabel("KL divergence from full precision, nats")
    axes.set_ylabel(part.speedup)
    axes.grid(color=LINE)


def _shown(column: Column) -> float:
    return max(column.kl_divergence, _LEAST)
