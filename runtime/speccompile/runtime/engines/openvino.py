"""OpenVINO on CPU: paged attention over pages that the engine owns and never moves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import openvino as ov
from numpy.typing import NDArray
from openvino import opset13 as ops
from openvino.frontend import NodeContext
from openvino.frontend.onnx import ConversionExtension

from speccompile.runtime.engine import Logits
from speccompile.runtime.engines.cursor import Cursor
from speccompile.runtime.errors import EngineError
from speccompile.runtime.manifest import EngineInfo

__all__ = ["OpenVINOEngine"]

_PAGE_ROWS = 32  # fixed by the CPU plugin

# Activations are quantized in groups of this many: of 32, 64, 192 and whole rows the fastest.
_DYNAMIC_QUANTIZATION_GROUP = 64


class OpenVINOEngine(Cursor):
    """Runs a graph lowered with ``speccompile::PagedAttention`` (see that pass for its inputs)."""

    def __init__(
        self,
        info: EngineInfo,
        graph: Path,
        *,
        threads: int = 0,
        cache_of: OpenVINOEngine | None = None,
    ) -> None:
        """`cache_of` is an engine of the same dimensions whose pages this one reads and writes."""
        super().__init__(info.capacity)
        self._pages = np.arange(-(-info.capacity // _PAGE_ROWS), dtype=np.int32)
        try:
            compiled = _compile(info, graph, threads)
            self._request = compiled.create_infer_request()
            self._caches: dict[str, ov.Tensor] = (
                cache_of._caches if cache_of else self._new_caches(compiled, info)
            )
            for name, pages in self._caches.items():
                self._request.set_tensor(name, pages)
        except RuntimeError as error:
            raise EngineError(f"{graph}: OpenVINO cannot open it: {_last_line(error)}") from error

    def step(self, tokens: Sequence[int]) -> Logits:
        rows = len(tokens)
        start = self.reserve(rows)
        end = start + rows
        pages = self._pages[: -(-end // _PAGE_ROWS)]
        self._set("input_ids", np.array([tokens], np.int64))
        self._set("position_ids", np.arange(start, end, dtype=np.int64)[None])
        self._set("past_lens", np.array([start], np.int32))
        self._set("subsequence_begins", np.array([0, rows], np.int32))
        self._set("block_indices", pages)
        self._set("block_indices_begins", np.array([0, len(pages)], np.int32))
        self._set("max_context_len", np.array(end, np.int32))
        try:
            self._request.infer()
        except RuntimeError as error:
            raise EngineError(f"OpenVINO failed on {rows} rows: {_last_line(error)}") from error
        self.length = end
        logits: Logits = self._request.get_tensor("logits").data[0]
        return logits

    def _new_caches(self, compiled: ov.CompiledModel, info: EngineInfo) -> dict[str, ov.Tensor]:
        shape = ov.Shape((len(self._pages), info.kv_heads, _PAGE_ROWS, info.head_dim))
        caches: dict[str, ov.Tensor] = {}
        for port in compiled.inputs:
            if port.any_name.startswith(("key_cache.", "value_cache.")):
                caches[port.any_name] = ov.Tensor(port.element_type, shape)
                caches[port.any_name].data[:] = 0
        return caches

    def _set(self, name: str, values: NDArray[np.int32] | NDArray[np.int64]) -> None:
        self._request.set_tensor(name, ov.Tensor(values))


def _compile(info: EngineInfo, graph: Path, threads: int) -> ov.CompiledModel:
    core = ov.Core()
    core.add_extension(ConversionExtension("PagedAttention", "speccompile", _paged_attention(info)))
    # A draft's own cache may round to fp16: it is never what decides. A target's, and one that is
    # shared with it, may not; but where the arithmetic is bf16, so is the cache: the plugin refuses
    # f32, and takes f16 to mean bf16.
    exact = info.role == "target" or info.shares_cache
    exact_cache = exact and info.arithmetic == "fp32"
    return core.compile_model(
        core.read_model(graph),
        "CPU",
        {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": str(threads),
            "INFERENCE_PRECISION_HINT": {"fp32": "f32", "bf16": "bf16"}[info.arithmetic],
            "KV_CACHE_PRECISION": "f32" if exact_cache else "f16",
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(_DYNAMIC_QUANTIZATION_GROUP),
        },
    )


def _paged_attention(info: EngineInfo) -> Callable[[NodeContext], list[ov.Output]]:
    """The converter of one ``speccompile::PagedAttention`` node to OpenVINO's operator."""

    def convert(node: NodeContext) -> list[ov.Output]:
        query, key, value, *cache = (node.get_input(index) for index in range(10))
        # The operator has no public constructor.
        operator = ov.op._PagedAttentionExtension(  # pyright: ignore[reportAttributeAccessIssue, reportPrivateUsage]
            [
                _flat(query, info.heads * info.head_dim),
                _flat(key, info.kv_heads * info.head_dim),
                _flat(value, info.kv_heads * info.head_dim),
                *cache[:-1],
                _scalar(info.head_dim**-0.5, np.float32),  # scale
                _scalar(0, np.int32),  # sliding window: none
                _empty(np.float32),  # ALiBi slopes
                cache[-1],  # max_context_len
                *_unused_inputs(),
            ]
        )
        facts = operator.get_rt_info()
        for side in ("k", "v"):
            facts[f"num_{side}_heads"] = info.kv_heads
            facts[f"{side}_head_size"] = info.head_dim
        shape = np.array([1, -1, info.heads, info.head_dim])
        mixed = ops.reshape(operator.output(0), shape, special_zero=False)
        heads: list[ov.Output] = ops.transpose(mixed, np.array([0, 2, 1, 3])).outputs()
        return heads

    return convert


def _flat(rows: ov.Output, width: int) -> ov.Output:
    """[1, heads, N, D] -> [N, heads x D], the layout of the operator."""
    ordered = ops.transpose(rows, np.array([0, 2, 1, 3]))
    return ops.reshape(ordered, np.array([-1, width]), special_zero=False).output(0)


def _unused_inputs() -> list[ov.Output]:
    """Inputs 13 to 27 of the operator: score output, cache rotation, sparse attention, eviction,
    sinks, token types and query-query bias, all absent."""
    return [
        _scalar(0, np.int32),
        _empty(np.int32),
        _empty(np.int32),
        _empty(np.float32),
        _empty(np.float32),
        _scalar(0, np.int32),
        _scalar(0, np.int32),
        _empty(np.float32),
        _scalar(0, np.int32),
        _empty(np.int32),
        _empty(np.int32),
        _empty(np.int32),
        _empty(np.int32),
        _empty(np.uint8),
        _empty(np.int32),
    ]


def _scalar(value: float, dtype: type[np.generic]) -> ov.Output:
    return ops.constant(np.array(value, dtype)).output(0)


def _empty(dtype: type[np.generic]) -> ov.Output:
    return ops.constant(np.zeros(0, dtype)).output(0)


def _last_line(error: RuntimeError) -> str:
    return [line.strip() for line in str(error).splitlines() if line.strip()][-1]
