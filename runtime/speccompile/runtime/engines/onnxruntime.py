"""ONNX Runtime on CPU: attention over static caches, bound as input and output at once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnxruntime as ort

from speccompile.runtime.engine import Logits
from speccompile.runtime.engines.cursor import Cursor
from speccompile.runtime.errors import EngineError
from speccompile.runtime.manifest import EngineInfo

__all__ = ["OnnxRuntimeEngine"]

_KEPT_ROWS = 16  # bindings up to so many rows are kept: decoding uses the same few again


class OnnxRuntimeEngine(Cursor):
    """Runs a graph lowered with `GroupQueryAttention` (see that pass for its inputs)."""

    def __init__(
        self,
        info: EngineInfo,
        graph: Path,
        *,
        threads: int = 0,
        cache_of: OnnxRuntimeEngine | None = None,
    ) -> None:
        """`cache_of` is an engine of the same dimensions whose caches this one reads and writes."""
        super().__init__(info.capacity)
        self._vocab_size = info.vocab_size
        self._session = _open(graph, threads)
        self._caches: dict[str, ort.OrtValue] = cache_of._caches if cache_of else _new_caches(info)
        self._inputs = {value.name for value in self._session.get_inputs()}
        self._bindings: dict[tuple[int, int], tuple[ort.IOBinding, Logits]] = {}

    def step(self, tokens: Sequence[int], *, last: int | None = None) -> Logits:
        rows = len(tokens)
        start = self.reserve(rows)
        end, wanted = start + rows, rows if last is None else last
        binding, logits = self._bindings.get((rows, wanted)) or self._bind(rows, wanted)
        feeds = {
            "input_ids": np.array([tokens], np.int64),
            "position_ids": np.arange(start, end)[None],
            "logit_rows": np.arange(rows - wanted, rows),
            "seqlens_k": np.array([end - 1], np.int32),
            "total_sequence_length": np.array(end, np.int32),
        }
        for name in self._inputs & feeds.keys():
            binding.bind_cpu_input(name, feeds[name])
        try:
            self._session.run_with_iobinding(binding)
        except Exception as error:
            raise EngineError(f"ONNX Runtime failed on {rows} rows: {_line(error)}") from error
        self.length = end
        return logits

    def _bind(self, rows: int, wanted: int) -> tuple[ort.IOBinding, Logits]:
        """Bind caches and logits for numbers of rows; small numbers come again and are kept."""
        binding = self._session.io_binding()
        for name, cache in self._caches.items():
            binding.bind_ortvalue_input(name, cache)
            binding.bind_ortvalue_output(f"new_{name}", cache)
        # On CPU an OrtValue made from an array is that array: the engine writes into it.
        logits = np.empty((1, wanted, self._vocab_size), np.float32)
        binding.bind_ortvalue_output("logits", ort.OrtValue.ortvalue_from_numpy(logits))
        bound = binding, logits[0]
        if rows <= _KEPT_ROWS:
            self._bindings[rows, wanted] = bound
        return bound


def _open(graph: Path, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # Two sessions with spinning workers halve each other: stop spinning when a run ends.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    try:
        return ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the library raises classes of its own, all unrelated
        raise EngineError(f"{graph}: ONNX Runtime cannot open it: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _new_caches(info: EngineInfo) -> dict[str, ort.OrtValue]:
    shape = (1, info.kv_heads, info.capacity, info.head_dim)
    return {
        f"{kind}.{layer}": ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))
        for layer in range(info.layers)
        for kind in ("key_cache", "value_cache")
    }
