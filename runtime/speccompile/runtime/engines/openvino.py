"""OpenVINO on CPU: paged attention over pages that the engine owns and never moves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import openvino as ov
from openvino.frontend.onnx import ConversionExtension

from speccompile.runtime.engine import Logits
from speccompile.runtime.engines.cursor import Cursor
from speccompile.runtime.engines.openvino_caches import PAGE_ROWS, OpenVINOCaches
from speccompile.runtime.engines.openvino_operator import paged_attention
from speccompile.runtime.errors import EngineError
from speccompile.runtime.manifest import EngineInfo

__all__ = ["OpenVINOEngine"]

# Activations are quantized in groups of this many: of 32, 64, 192 and whole rows the fastest.
_DYNAMIC_QUANTIZATION_GROUP = 64


class OpenVINOEngine(Cursor):
    """Runs a graph lowered for OpenVINO (see `lower/paged_attention.py` for its inputs)."""

    def __init__(
        self,
        info: EngineInfo,
        graph: Path,
        *,
        threads: int = 0,
        cache_of: OpenVINOEngine | None = None,
    ) -> None:
        """`cache_of` is an engine of the same dimensions whose caches this one reads and writes."""
        super().__init__(info.capacity)
        self._pages = np.arange(-(-info.capacity // PAGE_ROWS), dtype=np.int32)
        try:
            compiled = _compile(info, graph, threads)
            self._inputs = {port.any_name for port in compiled.inputs}
            self._request = compiled.create_infer_request()
            self._caches: OpenVINOCaches = (
                cache_of._caches if cache_of else OpenVINOCaches(info, compiled)
            )
            self._caches.attach(self._request)
        except RuntimeError as error:
            raise EngineError(f"{graph}: OpenVINO cannot open it: {_last_line(error)}") from error

    def step(self, tokens: Sequence[int], *, last: int | None = None) -> Logits:
        rows = len(tokens)
        first = 0 if last is None else rows - last
        start = self.reserve(rows)
        end = start + rows
        pages = self._pages[: -(-end // PAGE_ROWS)]
        feeds = {
            "input_ids": np.array([tokens], np.int64),
            "logit_rows": np.arange(first, rows, dtype=np.int64),
            "position_ids": np.arange(start, end, dtype=np.int64)[None],
            "past_lens": np.array([start], np.int32),
            "subsequence_begins": np.array([0, rows], np.int32),
            "block_indices": pages,
            "block_indices_begins": np.array([0, len(pages)], np.int32),
            "max_context_len": np.array(end, np.int32),
        }
        for name in self._inputs & feeds.keys():
            self._request.set_tensor(name, ov.Tensor(feeds[name]))
        self._caches.show(self._request, start)
        try:
            self._request.infer()
        except RuntimeError as error:
            raise EngineError(f"OpenVINO failed on {rows} rows: {_last_line(error)}") from error
        self._caches.append(self._request, start, end)
        self.length = end
        logits: Logits = self._request.get_tensor("logits").data[0]
        return logits


def _compile(info: EngineInfo, graph: Path, threads: int) -> ov.CompiledModel:
    core = ov.Core()
    core.add_extension(ConversionExtension("PagedAttention", "speccompile", paged_attention))
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


def _last_line(error: RuntimeError) -> str:
    return [line.strip() for line in str(error).splitlines() if line.strip()][-1]
