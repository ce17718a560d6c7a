"""lower: rewrite the contract into the graph that one engine runs best."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx_ir as ir

from speccompile.compiler.contract_file import open_contract
from speccompile.compiler.lower.backends import lowering
from speccompile.compiler.lower.passes import run_passes
from speccompile.compiler.stages.export import CONTRACT_FILE

__all__ = ["GRAPH_FILE", "GRAPH_WEIGHTS_FILE", "read_rewrites", "run", "write_rewrites"]

GRAPH_FILE = "model.onnx"
GRAPH_WEIGHTS_FILE = "model.onnx.data"
_REWRITES = "passes.json"


def read_rewrites(folder: Path) -> dict[str, int]:
    """How often each pass rewrote the graph, in the order that they ran."""
    content: dict[str, int] = json.loads((folder / _REWRITES).read_text(encoding="utf-8"))
    return content


def write_rewrites(folder: Path, counts: Mapping[str, int]) -> None:
    (folder / _REWRITES).write_text(json.dumps(counts), encoding="utf-8")


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `backend`, `precision`. The inputs are an `export` and a `quantize` stage."""
    exported, quantized = inputs.values()
    model = open_contract(exported / CONTRACT_FILE, quantized)
    counts = run_passes(model, lowering(settings["backend"], settings["precision"]))
    ir.save(model, folder / GRAPH_FILE, external_data=GRAPH_WEIGHTS_FILE)
    write_rewrites(folder, counts)
