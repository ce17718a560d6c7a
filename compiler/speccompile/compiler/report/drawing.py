"""Charts as SVG, to stand in a page: one style for all reports."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from markupsafe import Markup

if TYPE_CHECKING:  # optional, and slow to import: only a report needs it
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

__all__ = [
    "DRAFT",
    "FAINT",
    "INK",
    "LINE",
    "OTHER",
    "TARGET",
    "can_draw",
    "chart",
    "draw_acceptance",
]

INK, FAINT, LINE = "#1f2937", "#6b7280", "#e5e7eb"
TARGET, DRAFT, OTHER = "#4338ca", "#f59e0b", "#94a3b8"
"""Told apart by the colour-blind, too, by lightness alone."""

_STYLE: dict[RcKeyType, Any] = {
    "svg.fonttype": "none",  # text stays text: small, searchable, in the page's own font
    "font.size": 9,
    "text.color": INK,
    "text.parse_math": False,
    "axes.edgecolor": LINE,
    "axes.labelcolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": LINE,
    "xtick.color": LINE,
    "ytick.color": LINE,
    "xtick.labelcolor": FAINT,
    "ytick.labelcolor": FAINT,
}


def can_draw() -> bool:
    """Whether the library that draws is installed."""
    return find_spec("matplotlib") is not None


def chart(name: str, inches: tuple[float, float], draw: Callable[[Figure], None]) -> Markup:
    """An ``<svg>`` element of what `draw` puts on a figure; `name` is unique in its page."""
    import matplotlib
    from matplotlib.figure import Figure

    # The salt makes ids the same in every run, and different in every chart of a page.
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=inches, layout="constrained")
        draw(figure)
        file = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    # The ids of groups, such as axes_1, would be there once for every chart.
    return Markup(re.sub(r' id="[a-z0-9.]+_\d+"', "", svg))


def draw_acceptance(figure: Figure, acceptance: Sequence[float], tested: Sequence[int]) -> None:
    """How often each position of a proposal stood, of how many that were `tested`."""
    axes = figure.subplots()
    positions = range(1, len(acceptance) + 1)
    bars = axes.bar(positions, [100 * share for share in acceptance], width=0.6, color=TARGET)
    axes.bar_label(bars, fmt="%.0f", color=INK, padding=2)
    axes.set_xlabel("position in the proposal, and how many were tested")
    axes.set_ylabel("% accepted")
    labels = [f"{at}\n({count})" for at, count in zip(positions, tested, strict=True)]
    axes.set_xticks(positions, labels)
    axes.set_xlim(0.4, max(len(positions), 3) + 0.6)
    axes.set_ylim(0, 108)
    axes.set_yticks(range(0, 101, 25))
    axes.grid(axis="y")
