"""The plans of the check are built here by TensorRT-RTX, and their graphs run by ONNX Runtime."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import onnx_ir as ir
import pytest

from speccompile.compiler.reference import ContractEngine
from speccompile.compiler.tensorrt.rehearsal import make_runnable
from speccompile.runtime.device_model import place_models
from tests.gpu.plans import ROWS, check_pair, lower_pair
from tests.gpu.sections import Task
from tests.plan_model import PlanModel
from tests.plans import NEEDS_RTX
from tests.unit.gpu.devices import host_device

_BUILD = """
import sys
from pathlib import Path
from speccompile.compiler.tensorrt.library import open_library
from tests.gpu.plans import build_pair, lower_pair
from tests.gpu.sections import Task
from tests.plans import NoKernels

lowered = lower_pair(Path(sys.argv[1]), "tensorrt_rtx")
task = Task(60.0)
plans = build_pair(lowered, open_library("tensorrt_rtx"), "sm89", NoKernels(), task)
assert all(plan.stat().st_size == task.figures[f"plan of the {role}"]["bytes"] > 0
           for role, plan in plans.items())
"""


@pytest.mark.parametrize("library", ["tensorrt", "tensorrt_rtx"])
def test_the_pair_computes_what_the_contract_does(library: str, tmp_path: Path) -> None:
    device, task = host_device(), Task(60.0)
    lowered = lower_pair(tmp_path, "tensorrt" if library == "tensorrt" else "tensorrt_rtx")
    models: dict[str, PlanModel] = {}
    for role, graph in lowered.graphs.items():
        int8 = sum(node.op_type == "QuantizeLinear" for node in graph.graph)
        assert (int8 > 0) == (library == "tensorrt" and role == "draft")
        make_runnable(graph, lowered.rules[role])
        plan = lowered.folders[role] / "plan.onnx"
        ir.save(graph, plan, external_data="plan.onnx.data")
        models[role] = PlanModel(device, plan, name=role, rows=ROWS)
    placed = place_models(device, models, shares_cache=True)
    check_pair(device, placed, ContractEngine(lowered.contract, threads=1), task)
    assert task.outcome().reason == ""
    assert task.figures["session, K = 4"]["accepted"] > 0.3


@NEEDS_RTX
def test_tensorrt_rtx_builds_the_pair(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _BUILD, str(tmp_path)]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
    assert ir.load(tmp_path / "draft" / "graph.onnx")
