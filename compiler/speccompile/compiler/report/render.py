"""``reports/report.html``: the figures of ``build.json``, for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from speccompile.compiler.report.charts import draw_costs, draw_speedups, draw_stages
from speccompile.compiler.report.drawing import chart, draw_acceptance
from speccompile.compiler.report.page import render_page

__all__ = ["render_build"]

_WIDE, _HALF = 8.6, 4.2  # inches, at which text in charts is as large as that around them


def render_build(report: Mapping[str, Any]) -> str:
    """The page for a report as it is read from ``build.json``."""
    template = files("speccompile.compiler.report").joinpath("build.html").read_text("utf-8")
    verdict, stages = report["verdict"], report["stages"]
    acceptance, tested = verdict["acceptance"], report["validation"]["tested_proposals"]
    speedups = verdict["predicted_speedup"]
    return render_page(
        template,
        report=report,
        recipe=list(_lines(report["recipe"])),
        acceptance=acceptance
        and chart(
            "acceptance",
            (_HALF, 2.6),
            lambda figure: draw_acceptance(figure, acceptance, tested),
        ),
        speedups=speedups
        and chart(
            "speedups",
            (_HALF, 2.6),
            lambda figure: draw_speedups(figure, speedups, verdict["best_length"]),
        ),
        costs=chart("costs", (_WIDE, 2.7), lambda figure: draw_costs(figure, report["candidates"])),
        stages=chart(
            "stages", (_WIDE, 0.7 + 0.2 * len(stages)), lambda figure: draw_stages(figure, stages)
        ),
    )


def _lines(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """The settings of a recipe as dotted keys with their values; what is not set is left out."""
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _lines(value, f"{prefix}{key}.")
        elif value is not None:
            yield f"{prefix}{key}", json.dumps(value, ensure_ascii=False)
