"""A graph lowered for OpenVINO: read, compiled, and run once for every step."""

from __future__ import annotations

import time
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

import openvino as ov
from numpy.typing import NDArray
from openvino.frontend.onnx import ConversionExtension

from speccompile.runtime.engine import Logits
from speccompile.runtime.engines.cache_precision import cache_number_bytes
from speccompile.runtime.engines.openvino_operator import attends_in_windows, paged_attention
from speccompile.runtime.errors import EngineError
from speccompile.runtime.manifest import EngineInfo

__all__ = ["compile_graph", "infer", "last_line", "read_graph", "tree_refusal"]

# Activations are quantized in groups of this many: of 32, 64, 192 and whole rows the fastest.
_DYNAMIC_QUANTIZATION_GROUP = 64


def read_graph(graph: Path) -> ov.Model:
    """Raises RuntimeError, as OpenVINO does."""
    core = ov.Core()
    core.add_extension(ConversionExtension("PagedAttention", "speccompile", paged_attention))
    return core.read_model(graph)


def tree_refusal(model: ov.Model) -> str:
    """Why a graph takes no trees, and nothing where it does."""
    if not {"qq_bias", "ancestors"} & {port.any_name for port in model.inputs}:
        return "an older version lowered it; build the artifact again"
    if attends_in_windows(model):
        return (
            "OpenVINO counts their sliding window in slots, not in positions; "
            'propose chains, or build with engine.cpu = ["onnxruntime"]'
        )
    return ""


def compile_graph(info: EngineInfo, model: ov.Model, threads: int) -> ov.CompiledModel:
    """For the lowest latency of one step at a time. Raises RuntimeError, as OpenVINO does."""
    # In bf16 arithmetic the plugin refuses caches of f32, and takes f16 to mean bf16.
    cache = "f32" if cache_number_bytes(info) == 4 else "f16"
    return ov.Core().compile_model(
        model,
        "CPU",
        {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": str(threads),
            "INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16"}[info.arithmetic],
            "KV_CACHE_PRECISION": cache,
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(_DYNAMIC_QUANTIZATION_GROUP),
        },
    )


def infer(
    request: ov.InferRequest, inputs: Set[str], fed: Mapping[str, NDArray[Any]], what: str
) -> tuple[Logits, float]:
    """Run a step on those of `fed` that the graph has as `inputs`; returns its logits, [N, V], and
    the seconds for which the library computed.

    The logits are the request's own memory. Raises EngineError, which says `what` was computed.
    """
    for name in inputs & fed.keys():
        request.set_tensor(name, ov.Tensor(fed[name]))
    start = time.perf_counter()
    try:
        # `infer` does not raise what a node does: the logits of the step before would be read.
        request.start_async()
        request.wait()
    except RuntimeError as error:
        raise EngineError(f"OpenVINO failed on {what}: {last_line(error)}") from error
    seconds = time.perf_counter() - start
    logits: Logits = request.get_tensor("logits").data[0]
    return logits, seconds


def last_line(error: RuntimeError) -> str:
    """What OpenVINO says in the end; before that come the places in its sources."""
    return [line.strip() for line in str(error).splitlines() if line.strip()][-1]
