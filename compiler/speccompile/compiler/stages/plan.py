"""plan: a TensorRT plan of a lowered graph, for one GPU architecture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from speccompile.compiler.stages.kernels import KERNELS_FILE
from speccompile.compiler.stages.lower import GRAPH_FILE
from speccompile.compiler.stages.lower_plan import read_plan
from speccompile.compiler.tensorrt.builder import PlanSpec, Profile, build_plan
from speccompile.compiler.tensorrt.library import open_library
from speccompile.plugins.driver import CubinKernels
from speccompile.runtime.manifest import PlanInfo

__all__ = ["PLAN_FILE", "profiles", "read_report", "run"]

PLAN_FILE = "engine.plan"
_REPORT = "report.json"

_ROUND_ROWS = 16
"""The most rows of a round of speculation; what has more is a piece of a prompt."""

_USUAL_ROWS = {"target": 6, "draft": 1}
"""Of a round: a target judges five proposals, a draft makes one at a time."""


def read_report(folder: Path) -> dict[str, Any]:
    """What the builder said of the plan: the fields of `PlanReport`."""
    content: dict[str, Any] = json.loads((folder / _REPORT).read_text(encoding="utf-8"))
    return content


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `library`, `version`, `architecture`. The inputs are a `lower` stage of a plan and
    the `kernels` of the architecture."""
    lowered, kernels = inputs.values()
    info = read_plan(lowered)
    library = open_library(settings["library"])
    settings["report"](f"{library.title} for {settings['architecture']}")
    spec = PlanSpec(lowered / GRAPH_FILE, settings["architecture"], profiles(info, library.name))
    cubin = CubinKernels((kernels / KERNELS_FILE).read_bytes)
    report = build_plan(spec, library, cubin, folder / PLAN_FILE)
    (folder / _REPORT).write_text(json.dumps(asdict(report), indent=1), encoding="utf-8")


def profiles(info: PlanInfo, library: str) -> tuple[Profile, ...]:
    """One for rounds and one for pieces of a prompt, or one for both.

    TensorRT-RTX makes its kernels for the sizes it meets when it runs, so a second profile gives
    it little, and takes as long again to build. It refuses a short range of rows for a fixed number
    of sequences ("_iota"), and took a range of both in all that we tried.
    """
    batch, usual = (1, 1, max(info.batch, 2)), _USUAL_ROWS[info.role]
    if library == "tensorrt_rtx":
        return (Profile(batch, (1, usual, info.rows)),)
    rounds, prompts = (1, usual, _ROUND_ROWS), (_ROUND_ROWS, info.rows, info.rows)
    return (Profile(batch, rounds), Profile(batch, prompts))
