"""A benchmark as one HTML file: it loads nothing, so it works offline, by mail and on paper."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import jinja2
from markupsafe import Markup

from speccompile.runtime.bench import COST_ROWS, BenchResult
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.host import Host

if TYPE_CHECKING:  # optional, and slow to import: only a report needs it
    from matplotlib.axes import Axes
    from matplotlib.typing import RcKeyType

__all__ = ["Conditions", "render_report", "require_drawing"]

_INK, _FAINT, _LINE = "#1f2937", "#6b7280", "#e5e7eb"
_TARGET, _DRAFT, _OTHER = "#4338ca", "#f59e0b", "#94a3b8"
_STYLE: dict[RcKeyType, Any] = {
    "svg.fonttype": "none",  # text stays text: small, searchable, in the page's own font
    "font.size": 9,
    "text.color": _INK,
    "text.parse_math": False,
    "axes.edgecolor": _LINE,
    "axes.labelcolor": _FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "grid.color": _LINE,
    "xtick.color": _LINE,
    "ytick.color": _LINE,
    "xtick.labelcolor": _FAINT,
    "ytick.labelcolor": _FAINT,
}


@dataclass(frozen=True)
class Conditions:
    """What was measured, where and how; `engines` describes the engine of each role."""

    name: str
    identity: str
    engines: Mapping[str, str]
    draft: str
    draft_length: int
    max_new_tokens: int
    rounds: int
    threads: int
    host: Host
    date: str
    command: str

    @property
    def speculation(self) -> str:
        """How was drafted, in words."""
        if self.draft == "none":
            return "no draft, so both are plain decoding"
        return f"{self.draft} draft, at most {self.draft_length} proposed a round"


def require_drawing() -> None:
    """Raise SpeccompileError where the library that draws the charts is not installed."""
    if find_spec("matplotlib") is None:
        raise SpeccompileError(
            "--html needs matplotlib to draw; install it with: pip install 'speccompile[report]'"
        )


def render_report(conditions: Conditions, prompts: Sequence[str], result: BenchResult) -> str:
    """The page. All text from outside is escaped; only our own drawings are put in as they are."""
    source = files("speccompile.cli").joinpath("bench_report.html").read_text("utf-8")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    speedups = result.speedups
    return environment.from_string(source).render(
        conditions=conditions,
        result=result,
        prompts=[
            (text, speedups.get(index), index not in result.differing)
            for index, text in enumerate(prompts)
        ],
        scale=max(1.0, *speedups.values()) * 1.02,
        split=_chart("split", (10, 0.5), lambda axes: _draw_split(axes, result)),
        acceptance=_chart("acceptance", (5, 2.9), lambda axes: _draw_acceptance(axes, result)),
        costs=_chart("costs", (5, 2.9), lambda axes: _draw_costs(axes, result)),
    )


def _chart(name: str, inches: tuple[float, float], draw: Callable[[Axes], None]) -> Markup:
    """An ``<svg>`` element to be placed in a page."""
    import matplotlib
    from matplotlib.figure import Figure

    # The salt makes ids the same in every run, and different in every chart of a page.
    with matplotlib.rc_context({**_STYLE, "svg.hashsalt": name}):
        figure = Figure(figsize=inches, layout="constrained")
        draw(figure.subplots())
        file = io.StringIO()
        nothing = dict.fromkeys(("Creator", "Date", "Format", "Type"))
        figure.savefig(file, format="svg", transparent=True, metadata=nothing)
    svg = file.getvalue()
    svg = svg[svg.index("<svg") :]
    # The ids of groups, such as axes_1, would be there once for every chart.
    return Markup(re.sub(r' id="[a-z0-9.]+_\d+"', "", svg))


def _draw_split(axes: Axes, result: BenchResult) -> None:
    left = 0.0
    split = result.split
    for percent, color in ((split.draft, _DRAFT), (split.target, _TARGET), (split.other, _OTHER)):
        axes.barh(0, percent, left=left, color=color, edgecolor="white", linewidth=1.5)
        if percent >= 4:
            ink = _INK if color == _DRAFT else "white"
            axes.text(
                left + percent / 2, 0, f"{percent:.0f} %", color=ink, ha="center", va="center"
            )
        left += percent
    axes.set_xlim(0, 100)
    axes.margins(0)
    axes.set_axis_off()


def _draw_acceptance(axes: Axes, result: BenchResult) -> None:
    positions = range(1, len(result.acceptance) + 1)
    bars = axes.bar(
        positions, [100 * share for share in result.acceptance], width=0.6, color=_TARGET
    )
    axes.bar_label(bars, fmt="%.0f", color=_INK, padding=2)
    axes.set_xlabel("position in the proposal")
    axes.set_ylabel("% accepted")
    axes.set_xticks(positions)
    axes.set_xlim(0.4, max(len(positions), 3) + 0.6)
    axes.set_ylim(0, 108)
    axes.set_yticks(range(0, 101, 25))
    axes.grid(axis="y")


def _draw_costs(axes: Axes, result: BenchResult) -> None:
    colors = {"target": _TARGET, "draft": _DRAFT}
    for role, costs in result.cost_ms.items():
        rows, milliseconds = list(costs), list(costs.values())
        axes.plot(
            rows, milliseconds, "o-", label=role, color=colors[role], linewidth=2, markersize=4
        )
    axes.set_xlabel("rows in one step")
    axes.set_ylabel("milliseconds")
    axes.set_xticks(COST_ROWS)
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="y", nbins=6)
    axes.grid(axis="y")
    axes.legend(frameon=False, loc="lower right")
