"""Write the reports of a build."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speccompile.compiler.report.drawing import can_draw
from speccompile.compiler.report.render import render_build

__all__ = ["REPORT_PAGE", "write_reports"]

REPORT_PAGE = "report.html"


def write_reports(folder: Path, report: Mapping[str, Any]) -> None:
    """Make `folder` with ``build.json`` and, where matplotlib is there to draw, `REPORT_PAGE`."""
    folder.mkdir()
    text = json.dumps(report, indent=1, allow_nan=False)
    (folder / "build.json").write_text(text, encoding="utf-8")
    if can_draw():
        (folder / REPORT_PAGE).write_text(render_build(json.loads(text)), encoding="utf-8")
