"""The charts of a build's report, drawn from the figures of ``build.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from speccompile.compiler.report.drawing import DRAFT, FAINT, INK, LINE, OTHER, TARGET

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw_costs", "draw_speedups", "draw_stages"]

_COLORS = {"target": TARGET, "draft": DRAFT}
_LABEL_GAP = 0.1  # of the height of a chart


def draw_costs(figure: Figure, candidates: Sequence[Mapping[str, Any]]) -> None:
    """Milliseconds of a step by its rows: a panel for each role, a line for each engine."""
    roles = list(dict.fromkeys(entry["role"] for entry in candidates))
    panels = figure.subplots(1, len(roles), sharey=True, squeeze=False)[0]
    top = 1.08 * max(ms for entry in candidates for ms in entry["cost_ms"].values())
    for role, axes in zip(roles, panels, strict=True):
        axes.set_ylim(0, top)
        ends: list[tuple[float, str, bool]] = []
        for entry in (entry for entry in candidates if entry["role"] == role):
            costs = sorted((int(rows), ms) for rows, ms in entry["cost_ms"].items())
            rows, milliseconds = zip(*costs, strict=True)
            look = (_COLORS.get(role, DRAFT), "o-", 2.0) if entry["chosen"] else (OTHER, "s--", 1.2)
            color, line, width = look
            axes.plot(rows, milliseconds, line, color=color, linewidth=width, markersize=3.5)
            ends.append((milliseconds[-1] / top, entry["backend"], entry["chosen"]))
            axes.set_xticks([count for count in rows if count < 10 or count == rows[-1]])
        _label_ends(axes, ends)
        axes.set_title(role, loc="left", fontsize=9, color=INK)
        axes.set_xlabel("rows in one step")
        axes.locator_params(axis="y", nbins=6)
        axes.grid(axis="y")
    panels[0].set_ylabel("milliseconds")


def _label_ends(axes: Axes, ends: Sequence[tuple[float, str, bool]]) -> None:
    """Name each line at its right end; names that would overlap are moved up."""
    lowest = 0.0
    for height, backend, chosen in sorted(ends):
        lowest = max(height, lowest)
        axes.annotate(
            f"{backend}\nchosen" if chosen else backend,
            (1.02, lowest),
            xycoords="axes fraction",
            color=INK if chosen else FAINT,
            fontweight="bold" if chosen else "normal",
            va="center",
        )
        lowest += 1.6 * _LABEL_GAP if chosen else _LABEL_GAP


def draw_speedups(figure: Figure, speedups: Mapping[str, float], best: int) -> None:
    """The predicted speed-up by draft length, over plain decoding at 1."""
    axes = figure.subplots()
    lengths = [int(length) for length in speedups]
    colors = [TARGET if length == best else OTHER for length in lengths]
    bars = axes.bar(lengths, list(speedups.values()), width=0.7, color=colors)
    axes.bar_label(bars, fmt="%.2f", color=INK, padding=2)
    axes.axhline(1.0, color=INK, linewidth=1)
    axes.set_xlabel("draft length; 0 is plain decoding")
    axes.set_ylabel("times as fast")
    axes.set_xticks(lengths)
    axes.set_ylim(0, 1.12 * max(speedups.values()))
    axes.locator_params(axis="y", nbins=5)
    axes.grid(axis="y")


def draw_stages(figure: Figure, stages: Sequence[Mapping[str, Any]]) -> None:
    """What each stage took, of time and of memory; those from the cache are pale."""
    names = [stage["name"] for stage in stages]
    seconds = [stage["seconds"] for stage in stages]
    megabytes = [stage["peak_memory_bytes"] / 1e6 for stage in stages]
    panels = figure.subplots(1, 2, sharey=True)
    for axes, values, color, unit in (
        (panels[0], seconds, TARGET, "s"),
        (panels[1], megabytes, DRAFT, "MB"),
    ):
        bars = axes.barh(names, values, height=0.62, color=color)
        for bar, stage in zip(bars, stages, strict=True):
            bar.set_alpha(0.35 if stage["cached"] else 1.0)
        texts = [f"{value:.1f}" if unit == "s" else f"{value:.0f}" for value in values]
        axes.bar_label(bars, texts, color=INK, padding=3)
        axes.set_xlim(0, 1.15 * max(*values, 1e-3))
        axes.set_xlabel("seconds" if unit == "s" else "MB resident at most")
        axes.grid(axis="x", color=LINE)
        axes.tick_params(axis="y", length=0, labelcolor=INK)
        axes.locator_params(axis="x", nbins=6)
        axes.margins(y=0.02)
    panels[0].invert_yaxis()
