"""What is seen of stages while they run."""

from __future__ import annotations

import io
from pathlib import Path

from rich.console import Console

from speccompile.cli.progress import stage_progress
from speccompile.compiler.execute import StageResult
from speccompile.compiler.usage import Usage

_LOADED = StageResult("load target", Path(), False, Usage(1.5, 247_000_000))


def test_a_terminal_shows_what_a_stage_does() -> None:
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=80, color_system=None)
    with stage_progress(console) as observer:
        observer.started("validate", 1, 1)
        observer.reported("prompt [1] of 8")
        observer.finished(_LOADED)  # prints, and the running stage again below it
    assert "validate: prompt [1] of 8" in text.getvalue()
