"""An evaluation of drafts as one HTML file, which loads nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from itertools import cycle
from typing import TYPE_CHECKING, Any

from speccompile.cli.evaluation_view import held_out_of, labels
from speccompile.compiler.drafts.acceptance import Point
from speccompile.compiler.drafts.evaluation import Evaluation
from speccompile.compiler.drafts.figures import Figures
from speccompile.compiler.report.drawing import DRAFT, INK, OTHER, TARGET, chart
from speccompile.compiler.report.page import render_page

if TYPE_CHECKING:  # optional, and slow to import: only a report needs it
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["render_evaluations"]

_COLUMNS = 3  # of panels
_LOOKS = ((TARGET, "o"), (DRAFT, "s"), ("#0f766e", "^"), (OTHER, "D"), ("#be123c", "v"))


def render_evaluations(conditions: Mapping[str, Any], evaluations: Sequence[Evaluation]) -> str:
    """The page. All text from outside is escaped; only our own drawings are put in as they are."""
    drafts = [
        _Drawn(name, each, color, marker)
        for (name, each), (color, marker) in zip(labels(evaluations).items(), cycle(_LOOKS))
    ]
    domains = list(dict.fromkeys(domain for each in evaluations for domain in each.domains))
    taught = [each for each in drafts if each.curve]
    return render_page(
        files("speccompile.cli").joinpath("evaluation_report.html").read_text("utf-8"),
        conditions=conditions,
        drafts=drafts,
        held_out={each.name: held_out_of(each.evaluation) for each in drafts},
        acceptance=chart(
            "acceptance",
            (10, 0.4 + 2.5 * -(-len(domains) // _COLUMNS)),
            lambda figure: _draw_acceptance(figure, drafts, domains),
        ),
        rounds=chart("rounds", (10, 3.2), lambda figure: _draw_rounds(figure, drafts)),
        taught=taught,
        curves=taught and chart("curves", (10, 4.6), lambda figure: _draw_curves(figure, taught)),
    )


@dataclass(frozen=True)
class _Drawn:
    """A draft, and how it looks in all charts."""

    name: str
    evaluation: Evaluation
    color: str
    marker: str

    @property
    def overall(self) -> Figures:
        """Of all texts, which come last."""
        return list(self.evaluation.domains.values())[-1]

    @property
    def measured(self) -> float | None:
        """The speed-up of all texts."""
        measured = self.evaluation.measured
        return list(measured.speedups.values())[-1].median if measured else None

    @property
    def curve(self) -> Sequence[Point]:
        """Of its training, where that is told."""
        training = self.evaluation.training
        return training.curve if training else ()

    def draw(self, axes: Axes, x: Sequence[float], y: Sequence[float]) -> None:
        marker = self.marker if len(x) < 30 else ""
        axes.plot(x, y, color=self.color, marker=marker, markersize=4, linewidth=1.8)


def _draw_acceptance(figure: Figure, drafts: Sequence[_Drawn], domains: Sequence[str]) -> None:
    """A panel for each domain, a line for each draft."""
    for domain, axes in zip(domains, _panels(figure, len(domains)), strict=True):
        for draft in drafts:
            if found := draft.evaluation.domains.get(domain):
                shares = [100 * share for share in found.positions]
                draft.draw(axes, range(1, len(shares) + 1), shares)
                axes.set_xticks(range(1, len(shares) + 1))
        axes.set_title(domain, loc="left", fontsize=9, color=INK)
        axes.set_ylim(0, 104)
        axes.set_yticks(range(0, 101, 25))
        axes.set_xlabel("position in the chain")
        axes.grid(axis="y")
    figure.axes[0].set_ylabel("% stood")


def _panels(figure: Figure, count: int) -> Iterator[Axes]:
    columns = min(count, _COLUMNS)
    grid = figure.subplots(-(-count // columns), columns, squeeze=False)
    for number, axes in enumerate(grid.flat):
        if number < count:
            yield axes
        else:
            axes.set_axis_off()


def _draw_rounds(figure: Figure, drafts: Sequence[_Drawn]) -> None:
    """Of chains by their length: tokens a round, and what they are worth."""
    tokens, speedups = figure.subplots(1, 2)
    for draft in drafts:
        lengths = range(len(draft.overall.speedups))
        draft.draw(tokens, lengths, draft.overall.tokens_a_round)
        draft.draw(speedups, lengths, draft.overall.speedups)
        if draft.measured is not None:
            speedups.axhline(draft.measured, color=draft.color, linewidth=1.2, linestyle=":")
    speedups.axhline(1.0, color=INK, linewidth=0.8)
    for axes, name in ((tokens, "tokens a round"), (speedups, "times as fast as plain decoding")):
        axes.set_ylabel(name)
        axes.set_xlabel("draft length; 0 is plain decoding")
        axes.set_ylim(bottom=0)
        axes.locator_params(axis="y", nbins=6)
        axes.grid(axis="y")


def _draw_curves(figure: Figure, drafts: Sequence[_Drawn]) -> None:
    """How each draft learned."""
    loss, overlap, stood, tokens = figure.subplots(2, 2, sharex=True).flat
    for draft in drafts:
        seen = [point.tokens / 1e6 for point in draft.curve]
        draft.draw(loss, seen, [point.loss for point in draft.curve])
        draft.draw(overlap, seen, [point.overlap for point in draft.curve])
        draft.draw(stood, seen, [100 * point.positions[0] for point in draft.curve])
        draft.draw(tokens, seen, [point.tokens_a_round for point in draft.curve])
    for axes, name in (
        (loss, "loss"),
        (overlap, "laws in common, 1 - TV"),
        (stood, "% stood at the first position"),
        (tokens, "tokens a round"),
    ):
        axes.set_title(name, loc="left", fontsize=9, color=INK)
        axes.locator_params(axis="y", nbins=5)
        axes.grid(axis="y")
    for axes in (stood, tokens):
        axes.set_xlabel("million tokens learned from")
