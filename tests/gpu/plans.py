"""TensorRT plans of a tiny Llama, built for this GPU by the compiler's own passes and run on it: an
INT8 draft in the cache of an FP16 target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

import numpy as np
import onnx_ir as ir
import torch
from numpy.typing import NDArray

from speccompile.compiler.contract import build_contract
from speccompile.compiler.lower.backends import plan_lowering
from speccompile.compiler.lower.passes import run_passes
from speccompile.compiler.quantize import Int8Inputs, write_weights
from speccompile.compiler.reference import ContractEngine
from speccompile.compiler.tensorrt.builder import PlanSpec, Profile, build_plan
from speccompile.compiler.tensorrt.library import Library, open_library
from speccompile.compiler.weights import Weights
from speccompile.plugins.driver import Kernels
from speccompile.plugins.schema import Rule
from speccompile.plugins.tensorrt_plugin import register
from speccompile.runtime.device import Device
from speccompile.runtime.device_model import DeviceModel
from speccompile.runtime.device_session import DeviceSession
from speccompile.runtime.engines.device_engine import DeviceEngine
from speccompile.runtime.engines.tensorrt import open_plans
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.gpus import find_gpus
from speccompile.runtime.request import Request
from speccompile.runtime.rounds import Rounds
from speccompile.runtime.sampling import Sampling
from tests.families import CONTEXT, Tiny, tiny
from tests.gpu.opening import compiled_kernels, open_device
from tests.gpu.sections import Skip, Task
from tests.gpu.texts import greedy_text, same_text

__all__ = ["Lowered", "build_pair", "check_pair", "lower_pair", "run"]

ROWS = 64
_PROFILES = tuple(Profile((1, 1, 2), rows) for rows in ((1, 1, 1), (2, 6, 16), (16, ROWS, ROWS)))
_TOLERANCE = 2e-2
"""Of the largest logit: how far fp16 is from the contract, random weights being drawn wide."""


def run(task: Task) -> None:
    try:
        library = open_library()
    except SpeccompileError as error:
        raise Skip(str(error)) from None
    architecture = find_gpus().gpus[0].architecture
    if library.architectures and architecture not in library.architectures:
        raise Skip(f"{library.title} does not build for {architecture}")
    with TemporaryDirectory() as name, open_device() as device:
        kernels = compiled_kernels(device, task)
        device.load(kernels)
        lowered = lower_pair(Path(name), "tensorrt" if library.needs_device else "tensorrt_rtx")
        plans = build_pair(lowered, library, architecture, kernels, task)
        plugins = register(library.module, kernels)
        models = open_plans(library.module, device, plans, shares_cache=True, batch=1)
        check_pair(device, models, ContractEngine(lowered.contract, threads=1), task)
        task.note("calls of the plugins", dict(plugins.calls))


@dataclass(frozen=True)
class Lowered:
    """Graphs by role, and the contract of the target."""

    contract: Path
    graphs: Mapping[str, ir.Model]
    folders: Mapping[str, Path]
    rules: Mapping[str, Rule]


def lower_pair(folder: Path, library: Literal["tensorrt", "tensorrt_rtx"]) -> Lowered:
    """A target in fp16 with the rule "traversal", and the same in int8, with that of a draft."""
    model = tiny("llama")
    rules: dict[str, Rule] = {"target": "traversal", "draft": "walk"}
    graphs: dict[str, ir.Model] = {}
    folders: dict[str, Path] = {}
    for role, rule in rules.items():
        own = folders[role] = folder / role
        own.mkdir()
        # TensorRT multiplies in int8, so it has to know how large the inputs of layers are.
        static = role == "draft" and library == "tensorrt"
        inputs = Int8Inputs(_peaks(model), 0.0, static=True) if static else None
        precision = "fp16" if role == "target" else "int8"
        write_weights(model.config, model.read, precision, own, inputs=inputs)
        graph = graphs[role] = build_contract(model.config, Weights(own), CONTEXT)
        ir.save(graph, own / "contract.onnx")
        run_passes(graph, plan_lowering(library, rule, CONTEXT))
    return Lowered(folder / "target" / "contract.onnx", graphs, folders, rules)


def build_pair(
    lowered: Lowered, library: Library, architecture: str, kernels: Kernels, task: Task
) -> dict[str, Path]:
    """The plans by role."""
    plans: dict[str, Path] = {}
    for role, graph in lowered.graphs.items():
        path = lowered.folders[role] / "graph.onnx"
        ir.save(graph, path, external_data="graph.onnx.data")
        plans[role] = path.with_suffix(".plan")
        spec = PlanSpec(path, architecture, _PROFILES)
        report = build_plan(spec, library, kernels, plans[role])
        figures = {"library": library.title, "bytes": report.bytes, "seconds": report.seconds}
        task.note(f"plan of the {role}", figures)
    return plans


def check_pair(
    device: Device, models: Mapping[str, DeviceModel], contract: ContractEngine, task: Task
) -> None:
    """Logits are those of the contract, texts those of plain decoding."""

    def rows(tokens: Sequence[int]) -> NDArray[np.float32]:
        contract.rollback(0)
        return contract.step(tokens)

    tokens = [int(token) for token in np.random.default_rng(9).integers(3, 500, 40)]
    expected = rows(tokens).copy()
    engine = DeviceEngine(device, models["target"])
    found = np.concatenate([engine.step(tokens[:23]), *(engine.step([t]) for t in tokens[23:])])
    error = float(np.abs(found - expected).max() / np.abs(expected).max())
    task.note("logits", {"largest error of the largest logit": round(error, 5)})
    if not error <= _TOLERANCE:  # nor where it is NaN
        task.wrong(f"logits are {error:.1e} of the largest away from the contract's")

    prompt, count = tokens[:21], 60
    rounds = Rounds(device, models["target"], models["draft"], shares_cache=True)
    session = DeviceSession(rounds)
    plain = greedy_text(rows, prompt, count)
    for length in (0, 1, 4, 8):
        request = Request(count, draft_length=length)
        list(session.generate(prompt, request))  # captures
        text = list(session.generate(prompt, request))
        what, statistics = f"K = {length}", session.statistics
        common = same_text(task, what, text, plain, prompt, rows, _TOLERANCE)
        figures: dict[str, object] = {
            "ms_per_token": round(1e3 * statistics.decode_seconds / statistics.decode_tokens, 4),
            "accepted": round(statistics.acceptance, 3),
            "tokens_as_contract": common,
        }
        task.note(f"session, {what}", figures)
        sampled = Request(count, Sampling(0.9, top_p=0.95, seed=length), draft_length=length)
        texts = [list(session.generate(prompt, sampled)) for _ in range(2)]
        task.compare(f"a seed twice, {what}", texts[1], texts[0])


def _peaks(model: Tiny) -> dict[str, NDArray[np.float32]]:
    """The largest inputs of every layer's channels, over random text."""
    peaks: dict[str, NDArray[np.float32]] = {}

    def watch(name: str) -> None:
        def keep(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            peaks[name] = inputs[0].abs().flatten(0, -2).max(0).values.numpy()

        hooks.append(model.model.get_submodule(name).register_forward_pre_hook(keep))

    hooks: list[torch.utils.hooks.RemovableHandle] = []
    for name, module in model.model.named_modules():
        if isinstance(module, torch.nn.Linear):
            watch(name)
    model.logits([int(token) for token in np.random.default_rng(0).integers(0, 512, CONTEXT)])
    for hook in hooks:
        hook.remove()
    return peaks
