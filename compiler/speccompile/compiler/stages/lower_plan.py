"""lower: rewrite the contract into the graph that a TensorRT plan is built from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import onnx_ir as ir

from speccompile.compiler.contract_file import open_contract
from speccompile.compiler.lower.backends import plan_lowering
from speccompile.compiler.lower.passes import LoweringError, run_passes
from speccompile.compiler.stages.check import Checked
from speccompile.compiler.stages.export import CONTRACT_FILE
from speccompile.compiler.stages.lower import GRAPH_FILE, GRAPH_WEIGHTS_FILE, write_rewrites
from speccompile.runtime.manifest import PlanInfo

__all__ = ["PROMPT_ROWS", "read_plan", "run"]

PROMPT_ROWS = 128
"""The most rows of a step: those of a prompt."""

_FILE = "plan.json"


def read_plan(folder: Path) -> PlanInfo:
    """What is known of the plan to come; its path is that of the graph."""
    content: dict[str, Any] = json.loads((folder / _FILE).read_text(encoding="utf-8"))
    return PlanInfo(**content)


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `role`, `library`, `rule`, `precision`, `capacity` (null: the model's own),
    `batch`, `shares_cache`, and `layers` as in `lower`.

    The inputs are a `load`, the `check`, an `export` and a `quantize` stage.
    """
    loaded, checked, exported, quantized = inputs.values()
    model = Checked(loaded, checked)
    config = model.config
    if config.encoder:
        raise LoweringError("plans have no encoders; leave engine.tensorrt out of the recipe")
    capacity = min(settings["capacity"] or model.capacity, model.capacity)
    graph = open_contract(exported / CONTRACT_FILE, quantized)
    passes = plan_lowering(settings["library"], settings["rule"], capacity, settings["layers"])
    write_rewrites(folder, run_passes(graph, passes))
    ir.save(graph, folder / GRAPH_FILE, external_data=GRAPH_WEIGHTS_FILE)
    plan = PlanInfo(
        role=settings["role"],
        plan=GRAPH_FILE,
        precision=settings["precision"],
        rule=settings["rule"],
        layers=config.layers,
        kv_heads=config.kv_heads,
        heads=config.heads,
        head_dim=config.head_dim,
        capacity=capacity,
        vocab_size=config.vocab_size,
        batch=settings["batch"],
        rows=min(PROMPT_ROWS, capacity),
        shares_cache=settings["shares_cache"],
    )
    (folder / _FILE).write_text(json.dumps(asdict(plan), indent=1), encoding="utf-8")
