"""Rounds of lowered graphs and of the very kernels: all of a GPU's work but the GPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from speccompile.compiler.contract import build_contract
from speccompile.compiler.lower.backends import plan_lowering
from speccompile.compiler.lower.passes import run_passes
from speccompile.compiler.quantize import write_weights
from speccompile.compiler.tensorrt.rehearsal import make_runnable
from speccompile.compiler.weights import Weights
from speccompile.plugins.launches import Launch
from speccompile.plugins.schema import Rule
from speccompile.runtime.device_model import place_models
from speccompile.runtime.device_session import DeviceSession
from speccompile.runtime.engines.device_engine import DeviceEngine
from speccompile.runtime.request import Request
from speccompile.runtime.rounds import Rounds
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Session
from tests.device_pairs import TablePair, oracle
from tests.families import CONTEXT, tiny
from tests.host_device import HostDevice
from tests.kernels import host_kernels
from tests.plan_model import PlanModel
from tests.round_kernels import run_launch
from tests.table_model import half
from tests.unit.runtime.tables import make_table, near_table

PROMPT = [int(token) for token in np.random.default_rng(5).integers(3, 500, 21)]
TOLERANCE = 2e-3
"""Of the largest logit: rows that lie in other slots are summed in another order, in fp16."""
TABLE = half(make_table(1))
NEAR = half(near_table(TABLE, 2, noise=2.0))


def compiled_kernels() -> Callable[[Launch], None]:
    """The CUDA sources, compiled for the host; 32 threads stand for a block."""
    return partial(host_kernels().launch, threads=32)


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A target and its INT8 self-draft, lowered for TensorRT."""
    model = tiny("llama")
    folders: dict[str, Path] = {}
    roles: dict[str, tuple[str, Rule]] = {
        "target": ("fp16", "traversal"),
        "draft": ("int8", "walk"),
    }
    for role, (precision, rule) in roles.items():
        folder = tmp_path_factory.mktemp(role)
        write_weights(model.config, model.read, precision, folder)
        graph = build_contract(model.config, Weights(folder), CONTEXT)
        run_passes(graph, plan_lowering("tensorrt_rtx", rule, CONTEXT))
        make_runnable(graph, rule)
        ir.save(graph, folder / "plan.onnx", external_data="plan.onnx.data")
        folders[role] = folder / "plan.onnx"
    return folders


def session(
    plans: dict[str, Path], device: HostDevice, *, shares_cache: bool
) -> tuple[DeviceSession, DeviceEngine]:
    models = {role: PlanModel(device, graph, name=role, rows=9) for role, graph in plans.items()}
    placed = place_models(device, models, shares_cache=shares_cache)
    rounds = Rounds(device, placed["target"], placed["draft"], shares_cache=shares_cache)
    return DeviceSession(rounds), DeviceEngine(device, placed["target"])


@pytest.mark.parametrize("shares_cache", [True, False], ids=["shared", "own"])
@pytest.mark.parametrize("length", [0, 3])
def test_greedy_rounds_of_lowered_graphs_say_what_the_host_s_loop_says(
    length: int, shares_cache: bool, plans: dict[str, Path]
) -> None:
    on_device, engine = session(plans, HostDevice(False), shares_cache=shares_cache)
    request = Request(24, draft_length=length)
    ids = list(on_device.generate(PROMPT, request))
    assert ids == list(Session(engine).generate(PROMPT, request))
    assert len(set(ids)) > 5
    if length:
        assert on_device.statistics.acceptance > 0.5


def test_a_tree_of_a_lowered_graph_says_what_its_paths_say(plans: dict[str, Path]) -> None:
    _, engine = session(plans, HostDevice(False), shares_cache=True)
    start = len(PROMPT)
    engine.step(PROMPT)
    tokens, parents = [7, 91, 12, 400, 33, 5, 8], [-1, 0, 0, 1, 1, 2, -1]
    found = engine.step(tokens, parents=parents)
    for node in range(len(tokens)):
        path = [node]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        engine.rollback(start)
        expected = engine.step([tokens[each] for each in path], last=1)[0]
        assert np.abs(found[node] - expected).max() <= TOLERANCE * np.abs(expected).max()


def test_the_numpy_kernels_stand_for_the_compiled_ones(plans: dict[str, Path]) -> None:
    request = Request(24, Sampling(0.8, top_p=0.9, seed=4), draft_length=3)
    outputs: list[list[int]] = []
    for run in (run_launch, compiled_kernels()):
        on_device, _ = session(plans, HostDevice(run=run), shares_cache=False)
        outputs.append(list(on_device.generate(PROMPT, request)))
        assert on_device.statistics.acceptance > 0.3
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("shares_cache", [True, False], ids=["shared", "own"])
@pytest.mark.parametrize("length", [0, 1, 5])
def test_the_compiled_kernels_make_the_rounds_of_the_rules(length: int, shares_cache: bool) -> None:
    for seed in range(3):
        sampling = Sampling(0.9, top_k=6, seed=seed + (1 << 63))
        device = HostDevice(False, run=compiled_kernels())
        pair = TablePair(TABLE, NEAR, device=device, shares_cache=shares_cache, capacity=40)
        request = Request(100, sampling, draft_length=length)
        expected = list(oracle(TABLE, NEAR, [2, 5], sampling, length, capacity=40))
        assert list(DeviceSession(pair.rounds).generate([2, 5], request)) == expected[:38]
