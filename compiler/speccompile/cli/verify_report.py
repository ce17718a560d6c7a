"""A proof as JSON, and as one HTML file that loads nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from speccompile.compiler.report.drawing import DRAFT, FAINT, INK, TARGET, chart
from speccompile.compiler.report.page import render_page
from speccompile.runtime.host import Host
from speccompile.runtime.proof.check import Check
from speccompile.runtime.proof.prove import LEVELS

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

__all__ = ["Proved", "render_proof"]

_BARS = 32
_MEANINGS = {
    None: "What the levels rest on",
    0: "The rules, by exact enumeration",
    1: "Sampling in the production loop, by chi-square tests",
    2: "Sampled output with shared noise, token for token",
    3: "Greedy output, token for token",
    4: "A stream of sampled tokens on the artifact's engines",
}


@dataclass(frozen=True)
class Proved:
    """What was checked where and when, and what came of it."""

    name: str
    identity: str
    on: str
    checks: Sequence[Check]
    host: Host
    date: str
    command: str

    @property
    def failed(self) -> list[str]:
        return [check.name for check in self.checks if not check.passed]

    def document(self) -> dict[str, object]:
        """All of it that does not depend on time and place, as JSON."""
        return {
            "name": self.name,
            "identity": self.identity,
            "on": self.on,
            "lossless": not self.failed,
            "checks": [{**asdict(check), "level": LEVELS.get(check.name)} for check in self.checks],
        }


class _Card(NamedTuple):
    label: str
    value: str
    note: str
    failed: bool


def render_proof(proved: Proved) -> str:
    """The page. All text from outside is escaped; only our own drawings are put in as they are."""
    template = files("speccompile.cli").joinpath("verify_report.html").read_text("utf-8")
    found = {check.name: check for check in proved.checks}
    levels = {
        meaning: [check for check in proved.checks if LEVELS.get(check.name) == level]
        for level, meaning in _MEANINGS.items()
    }
    return render_page(
        template,
        proved=proved,
        levels={meaning: checks for meaning, checks in levels.items() if checks},
        numbers={meaning: level for level, meaning in _MEANINGS.items()},
        cards=_cards(found),
        stream=found.get("stream"),
        charts=_charts(found["stream"].details) if "stream" in found else None,
    )


def _cards(found: dict[str, Check]) -> list[_Card]:
    cards: list[_Card] = []
    for name, label, show in (
        ("exact", "Error of the rules", _exact),
        ("sampling", "Least p of sampling", _sampling),
        ("seeded", "Seeded output", _equality),
        ("greedy", "Greedy output", _equality),
    ):
        if check := found.get(name):
            value, note = show(check.details)
            cards.append(_Card(label, value, note, not check.passed))
    return cards


def _exact(details: Any) -> tuple[str, str]:  # noqa: ANN401 - JSON
    return f"{max(details['errors'].values()):.0e}", f"{details['outcomes']:,} outcomes, in fp64"


def _sampling(details: Any) -> tuple[str, str]:  # noqa: ANN401 - JSON
    return f"{details['worst_p']:.2g}", f"{details['draws']:,} draws a test"


def _equality(details: Any) -> tuple[str, str]:  # noqa: ANN401 - JSON
    same = details["runs"] - details["differing_runs"]
    return f"{same} of {details['runs']}", f"runs equal, {details['compared_tokens']:,} tokens"


def _charts(details: Any) -> tuple[Markup, Markup]:  # noqa: ANN401 - JSON
    return (
        chart("histogram", (5, 2.9), partial(_draw_histogram, details)),
        chart("deviation", (5, 2.9), partial(_draw_deviation, details)),
    )


def _draw_histogram(details: Any, figure: Figure) -> None:  # noqa: ANN401 - JSON
    """How often v is in each of equally wide bins, in multiples of what is expected."""
    counts = np.array(details["histogram"]).reshape(_BARS, -1).sum(axis=1)
    expected = max(details["tokens"], 1) / _BARS
    axes = figure.subplots()
    axes.bar((np.arange(_BARS) + 0.5) / _BARS, counts / expected, width=0.9 / _BARS, color=TARGET)
    spread = 2 / np.sqrt(expected)
    axes.axhspan(1 - spread, 1 + spread, color=DRAFT, alpha=0.25, linewidth=0, zorder=3)
    axes.axhline(1, color=INK, linewidth=1, zorder=4)
    axes.set_xlim(0, 1)
    axes.set_ylim(0, max(1.5, 1.1 * float(counts.max()) / expected))
    axes.set_xlabel("v; the band holds 95 % of the bars of a uniform stream")
    axes.set_ylabel("share, 1 is uniform")


def _draw_deviation(details: Any, figure: Figure) -> None:  # noqa: ANN401 - JSON
    """The empirical distribution function of v less the uniform one, within its limits."""
    counts = np.array(details["histogram"])
    edges = np.arange(len(counts) + 1) / len(counts)
    shares = np.concatenate([[0.0], np.cumsum(counts) / max(details["tokens"], 1)])
    limit = details["ks_limit"]
    axes = figure.subplots()
    axes.plot(edges, shares - edges, color=TARGET, linewidth=1.5)
    for side in (-limit, limit):
        axes.axhline(side, color=DRAFT, linewidth=1.5, linestyle="--")
    axes.axhline(0, color=INK, linewidth=1)
    axes.annotate(
        f"limit {limit:.4f}",
        (0.99, limit),
        (0, -3),
        textcoords="offset points",
        ha="right",
        va="top",
        color=FAINT,
    )
    most = 1.15 * max(limit, float(np.abs(shares - edges).max()))
    axes.set_xlim(0, 1)
    axes.set_ylim(-most, most)
    axes.set_xlabel("v")
    axes.set_ylabel("distribution less uniform")
