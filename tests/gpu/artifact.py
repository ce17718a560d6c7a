"""An artifact's plans on this GPU against its engines for the CPU, on the prompts that ship."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from speccompile.cli.prompts import read_prompts
from speccompile.plugins.driver import CubinKernels
from speccompile.plugins.tensorrt_plugin import register
from speccompile.runtime.device_session import DeviceSession
from speccompile.runtime.devices.cuda import CudaDevice
from speccompile.runtime.engines.tensorrt import import_library, open_plans
from speccompile.runtime.gpus import find_gpus, gpu_needs, plan_pairs
from speccompile.runtime.manifest import GpuEngines
from speccompile.runtime.rounds import Rounds
from speccompile.runtime.runner import CHAT_TEMPLATE_FILE, Runner
from speccompile.runtime.session import Request
from tests.gpu.opening import open_device
from tests.gpu.sections import Skip, Task
from tests.gpu.texts import same_text

__all__ = ["run"]

_PROMPTS, _TOKENS, _PROPOSALS = 8, 48, 4
_TIE = 2e-2
"""Plans have fp16 where the engines for the CPU have fp32, and TensorRT sums in fp16 too."""


def run(task: Task) -> None:
    if task.artifact is None:
        raise Skip("none was given; --artifact DIR")
    runner = Runner.open(task.artifact)
    engines = _engines(runner)
    with open_device() as device:
        session = _session(device, runner, engines)
        target = runner.engine("target")

        def rows(tokens: Sequence[int]) -> NDArray[np.float32]:
            target.rollback(0)
            return target.step(tokens).copy()

        for number, text in enumerate(read_prompts()[:_PROMPTS], start=1):
            if not task.has_time(0.85):
                break
            prompt = _encoded(runner, text)
            plain = Request(_TOKENS, draft_length=0)
            expected = list(runner.session("none").generate(prompt, plain))
            for length in (0, _PROPOSALS):
                found = list(session.generate(prompt, Request(_TOKENS, draft_length=length)))
                what, statistics = f"prompt {number}, K = {length}", session.statistics
                common = same_text(task, what, found, expected, prompt, rows, _TIE)
                figures: dict[str, object] = {
                    "tokens_per_second": round(statistics.tokens_per_second, 1),
                    "accepted": round(statistics.acceptance, 3),
                    "tokens_as_cpu": common,
                }
                task.note(what, figures)


def _engines(runner: Runner) -> GpuEngines:
    """Those for this GPU, if it and its driver have what they need."""
    found = find_gpus()
    gpu = found.gpus[0]
    offered = runner.manifest.gpus.values()
    engines = next((each for each in offered if each.architecture == gpu.architecture), None)
    if engines is None:
        others = ", ".join(each.architecture for each in offered) or "no GPU"
        raise Skip(f"it has plans for {others}, not for {gpu.architecture}")
    lacks = [need for need in gpu_needs(engines, gpu, found.driver) if not need.met]
    if lacks:
        raise Skip("; ".join(f"{need.what}: {need.need}, here {need.have}" for need in lacks))
    return engines


def _session(device: CudaDevice, runner: Runner, engines: GpuEngines) -> DeviceSession:
    kernels = CubinKernels(runner.artifact.path(engines.kernels).read_bytes)
    device.load(kernels)
    library = import_library(engines.library)
    register(library, kernels)
    pair = plan_pairs(engines)[-1]
    shares_cache = pair.draft is not None and pair.draft.shares_cache
    paths = {str(plan.role): runner.artifact.path(plan.plan) for plan in pair.plans}
    models = open_plans(library, device, paths, shares_cache=shares_cache, batch=1)
    rounds = Rounds(device, models["target"], models.get("draft"), shares_cache=shares_cache)
    return DeviceSession(rounds, context=runner.manifest.model.context_length)


def _encoded(runner: Runner, text: str) -> list[int]:
    if CHAT_TEMPLATE_FILE in runner.manifest.files:
        return runner.encode_chat([{"role": "user", "content": text}])
    return runner.encode_raw(text)
