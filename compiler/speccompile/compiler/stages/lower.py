"""lower: rewrite the contract into the graph that one engine runs best."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir

from speccompile.compiler.lower.backends import lowering
from speccompile.compiler.lower.passes import run_passes
from speccompile.compiler.stages.export import CONTRACT_FILE

__all__ = ["GRAPH_FILE", "GRAPH_WEIGHTS_FILE", "run"]

GRAPH_FILE = "model.onnx"
GRAPH_WEIGHTS_FILE = "model.onnx.data"


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `backend`, `precision`. The input is an `export` stage."""
    (exported,) = inputs.values()
    model = ir.load(exported / CONTRACT_FILE)
    counts = run_passes(model, lowering(settings["backend"], settings["precision"]))
    ir.save(model, folder / GRAPH_FILE, external_data=GRAPH_WEIGHTS_FILE)
    (folder / "passes.json").write_text(json.dumps(counts), encoding="utf-8")
