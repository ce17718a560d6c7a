"""budget: would the artifact fit into the memory that the recipe grants it? A stage of its own: how
the weights are stored decides it, and nothing else that comes before quantization."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speccompile.compiler.memory import cache_bytes, check_budget, weight_bytes
from speccompile.compiler.stages.check import Checked

__all__ = ["run"]


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `memory_gb`, or null, by role how its weights are stored, `roles`, the tokens of
    the draft's head, `draft_vocabulary`, 0 for all, and whether it `shares_cache`.

    The inputs are the `check` and the `load` stages.
    """
    checked, target = inputs["check"], inputs["load target"]
    parts: dict[str, int] = {}
    for role, stored in settings["roles"].items():
        own = inputs.get(f"load {role}")
        model = Checked(own or target, checked)
        parts[f"{role} weights"] = weight_bytes(
            model.config,
            stored["precision"],
            dict(stored["layers"] or {}),
            head_rows=settings["draft_vocabulary"] if role == "draft" else 0,
        )
        if role == "target" or not settings["shares_cache"]:
            parts[f"{role} cache"] = cache_bytes(model.config, model.capacity)
    check_budget(parts, settings["memory_gb"])
    (folder / "budget.json").write_text(json.dumps(parts, indent=1), encoding="utf-8")
