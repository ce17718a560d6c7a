"""The self-test of lowered graphs, with the compiled kernels, against the contract: all but the
GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import onnx_ir as ir
import pytest

from speccompile.compiler.contract import build_contract
from speccompile.compiler.lower.backends import plan_lowering
from speccompile.compiler.lower.passes import run_passes
from speccompile.compiler.quantize import write_weights
from speccompile.compiler.reference import ContractEngine
from speccompile.compiler.tensorrt.rehearsal import make_runnable
from speccompile.compiler.weights import Weights
from speccompile.runtime.device_engines import DeviceEngines
from speccompile.runtime.device_model import place_models
from speccompile.runtime.gpus import PlanPair
from speccompile.runtime.manifest import PlanInfo
from speccompile.runtime.proof.check import Check
from speccompile.runtime.proof.gpu import check_plans, expected_logits
from tests.families import CONTEXT, tiny
from tests.host_device import HostDevice
from tests.kernels import host_kernels
from tests.plan_model import PlanModel

TARGET = PlanInfo(
    *("target", "plan.onnx", "fp16", "traversal", 2, 2, 4, 16, CONTEXT, 512, 1, 64),
    shares_cache=False,
)
DRAFT = replace(TARGET, role="draft", precision="int8", rule="walk", shares_cache=True)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target and its INT8 self-draft: contract, and graph of the plan."""
    model = tiny("llama")
    folders: dict[str, Path] = {}
    for plan in (TARGET, DRAFT):
        folder = folders[plan.role] = tmp_path_factory.mktemp(plan.role)
        write_weights(model.config, model.read, plan.precision, folder)
        graph = build_contract(model.config, Weights(folder), CONTEXT)
        ir.save(graph, folder / "contract.onnx")
        run_passes(graph, plan_lowering("tensorrt_rtx", plan.rule, CONTEXT))
        make_runnable(graph, plan.rule)
        ir.save(graph, folder / "plan.onnx", external_data="plan.onnx.data")
    return folders


def checks(folders: Mapping[str, Path]) -> Iterator[Check]:
    device = HostDevice(run=host_kernels().launch)
    models = {
        role: PlanModel(device, folder / "plan.onnx", name=role, rows=TARGET.rows)
        for role, folder in folders.items()
    }
    placed = place_models(device, models, shares_cache=True)
    engines = DeviceEngines(device, placed, shares_cache=True)
    contracts = {role: ContractEngine(folders[role] / "contract.onnx") for role in folders}
    yield from check_plans(engines, PlanPair(TARGET, DRAFT), expected_logits(contracts, 512), 3)


def test_lowered_graphs_pass(folders: dict[str, Path]) -> None:
    found = {check.name: check for check in checks(folders)}
    failed = {name: check.summary for name, check in found.items() if not check.passed}
    assert failed == {}
    assert len(found) == 7
    assert isinstance(error := found["target logits"].details["relative_error"], float)
    assert 0.0 < error < 5e-3
    assert found["greedy"].details["tested_proposals"] != 0
