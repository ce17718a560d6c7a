"""budget: would the engines of the recipe run the models, and in the memory that it grants them? A
stage of its own: nothing else that comes before quantization depends on engines and on how weights
are stored."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from speccompile.compiler.memory import cache_bytes, check_budget, weight_bytes
from speccompile.compiler.pairing import PairError
from speccompile.compiler.stages.check import Checked

__all__ = ["run"]


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: the `engines` of the CPU, `memory_gb`, or null, and by role how its weights are
    stored, the tokens of its head, `vocabulary`, 0 for all, and whether it `shares_cache`: `roles`.

    The inputs are the `check` and the `load` stages.
    """
    checked, target = inputs["check"], inputs["load target"]
    _check_engines(Checked(target, checked), settings["engines"])
    parts: dict[str, int] = {}
    for role, stored in settings["roles"].items():
        own = inputs.get(f"load {role}")
        model = Checked(own or target, checked)
        parts[f"{role} weights"] = weight_bytes(
            model.config,
            stored["precision"],
            dict(stored["layers"] or {}),
            settings["engines"],
            head_rows=stored["vocabulary"],
        )
        if not stored["shares_cache"]:
            parts[f"{role} cache"] = cache_bytes(model.config, model.capacity)
    check_budget(parts, settings["memory_gb"])
    (folder / "budget.json").write_text(json.dumps(parts, indent=1), encoding="utf-8")


def _check_engines(target: Checked, engines: Sequence[str]) -> None:
    others = [name for name in engines if name != "onnxruntime"]
    if target.config.encoder and others:
        raise PairError(
            f"the target ({target.loaded.provenance['source']}) is an encoder-decoder, which "
            f'{others[0]} does not run here; set engine.cpu = ["onnxruntime"]'
        )
