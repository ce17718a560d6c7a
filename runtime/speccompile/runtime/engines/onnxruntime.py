"""ONNX Runtime on CPU: attention over static caches, bound as input and output at once."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from pathlib import Path

import numpy as np

from speccompile.runtime.engine import Logits
from speccompile.runtime.engines.cursor import Cursor
from speccompile.runtime.engines.encoder import OnnxRuntimeEncoder
from speccompile.runtime.engines.onnxruntime_session import one_line, open_session
from speccompile.runtime.engines.ort import ort
from speccompile.runtime.engines.visibility import seen_rows
from speccompile.runtime.errors import EngineError
from speccompile.runtime.manifest import EngineInfo

__all__ = ["OnnxRuntimeEngine"]

_KEPT_ROWS = 16  # bindings up to so many rows are kept: decoding uses the same few again
_CHAIN = np.zeros((0, 0), np.bool_)  # in it a row sees all before it


class OnnxRuntimeEngine(Cursor):
    """Runs a graph lowered with `CachedAttention` (see that pass for its inputs)."""

    def __init__(
        self,
        info: EngineInfo,
        graph: Path,
        *,
        threads: int = 0,
        cache_of: OnnxRuntimeEngine | None = None,
        encoder: OnnxRuntimeEncoder | None = None,
    ) -> None:
        """`cache_of` is an engine of the same dimensions whose caches this one reads and writes, or
        those of some of its layers; `encoder` what reads the source of a decoder that has one."""
        super().__init__(info.capacity)
        self._info, self._graph = info, graph
        self._session = open_session(graph, threads)
        self._encoder = encoder
        self._inputs = {value.name for value in self._session.get_inputs()}
        self._caches: dict[str, ort.OrtValue] = (
            _shared_caches(cache_of._caches, self._inputs, graph)
            if cache_of
            else _new_caches(info, self._inputs)
        )
        self._has_source = "source_key.0" in self._inputs
        self._bindings: dict[tuple[int, int], tuple[ort.IOBinding, Logits]] = {}

    def another(self) -> OnnxRuntimeEngine:
        """An engine of the same graph and weights for another sequence: its caches are its own."""
        engine = copy(self)
        engine.length, engine._bindings = 0, {}
        engine._caches = _new_caches(self._info, self._inputs)
        return engine

    @property
    def takes_trees(self) -> bool:
        """Not with a position bias, which counts slots."""
        return not self._has_source

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        rows = len(tokens)
        start = self.reserve(rows)
        end, wanted = start + rows, rows if last is None else last
        tree = seen_rows(rows, parents)
        if tree is not None and not self.takes_trees:
            raise EngineError(
                f"{self._graph}: takes chains of rows only, for its position bias counts slots"
            )
        depths = np.arange(rows) if tree is None else tree.sum(axis=1) - 1
        binding, logits = self._bindings.get((rows, wanted)) or self._bind(rows, wanted)
        feeds = {
            "input_ids": np.array([tokens], np.int64),
            "position_ids": (start + depths)[None],
            "logit_rows": np.arange(rows - wanted, rows),
            "past_lens": np.array([start], np.int32),
            "ancestors": _CHAIN if tree is None else tree,
        }
        for name in self._inputs & feeds.keys():
            binding.bind_cpu_input(name, feeds[name])
        if self._has_source:
            self._bind_source(binding)
        begun = time.perf_counter()
        try:
            self._session.run_with_iobinding(binding)
        except Exception as error:
            raise EngineError(f"ONNX Runtime failed on {rows} rows: {one_line(error)}") from error
        self.computing_seconds += time.perf_counter() - begun
        self.length = end
        return logits

    def _bind_source(self, binding: ort.IOBinding) -> None:
        """Bindings are kept, sources are not: it is the latest one's turn in every step."""
        if self._encoder is None or not self._encoder.rows:
            raise EngineError(f"{self._graph}: no source was read, which its rows attend to")
        for name, rows in self._encoder.rows.items():
            binding.bind_ortvalue_input(name, rows)

    def _bind(self, rows: int, wanted: int) -> tuple[ort.IOBinding, Logits]:
        """Bind caches and logits for numbers of rows; small numbers come again and are kept."""
        binding = self._session.io_binding()
        for name, cache in self._caches.items():
            binding.bind_ortvalue_input(name, cache)
            binding.bind_ortvalue_output(f"new_{name}", cache)
        # On CPU an OrtValue made from an array is that array: the engine writes into it.
        logits = np.empty((1, wanted, self._info.vocab_size), np.float32)
        binding.bind_ortvalue_output("logits", ort.OrtValue.ortvalue_from_numpy(logits))
        bound = binding, logits[0]
        if rows <= _KEPT_ROWS:
            self._bindings[rows, wanted] = bound
        return bound


def _new_caches(info: EngineInfo, inputs: Iterable[str]) -> dict[str, ort.OrtValue]:
    shape = (1, info.kv_heads, info.capacity, info.head_dim)
    return {
        name: ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, np.float32))
        for name in inputs
        if _is_cache(name)
    }


def _shared_caches(
    caches: Mapping[str, ort.OrtValue], inputs: Iterable[str], graph: Path
) -> dict[str, ort.OrtValue]:
    """Of a target's `caches` those that a graph has."""
    names = sorted(filter(_is_cache, inputs))
    if strange := [name for name in names if name not in caches]:
        raise EngineError(f"{graph}: its target has no {strange[0]}; build the artifact again")
    return {name: caches[name] for name in names}


def _is_cache(name: str) -> bool:
    return name.startswith(("key_cache.", "value_cache."))
