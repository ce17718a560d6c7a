"""An engine runs one model over one sequence: rows in, logits out, roll back by index."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.errors import RequestError
from speccompile.runtime.manifest import EngineInfo

__all__ = ["PREFILL_ROWS", "Engine", "Logits", "open_engine", "prefill"]

Logits = NDArray[np.float32]

PREFILL_ROWS = 128
"""Prompt rows per call: enough for the matrix products, and the logits of a chunk stay small."""


class Engine(Protocol):
    """One model with its key-value cache, whose first `length` slots hold committed rows."""

    @property
    def capacity(self) -> int:
        """Cache slots: the longest sequence."""
        ...

    @property
    def length(self) -> int:
        """Rows in the cache."""
        ...

    def step(self, tokens: Sequence[int]) -> Logits:
        """Append `tokens` as rows and return their logits, [N, V].

        The array is the engine's own memory: it is overwritten by the next step.
        Raises EngineError where the engine fails, RequestError where the cache is full.
        """
        ...

    def rollback(self, length: int) -> None:
        """Forget every row from `length` on. Nothing is copied: the slots are written again."""
        ...


def prefill(engine: Engine, tokens: Sequence[int]) -> Logits:
    """Append a prompt in chunks; returns the logits of its last row, [V]."""
    last: Logits | None = None
    for start in range(0, len(tokens), PREFILL_ROWS):
        last = engine.step(tokens[start : start + PREFILL_ROWS])[-1]
    if last is None:
        raise RequestError("the prompt is empty; give it at least one token")
    return last


def open_engine(info: EngineInfo, graph: Path, *, threads: int = 0) -> Engine:
    """Open `graph` with the backend that the artifact names; `threads` = 0 takes every core."""
    engine = _open_backend(info, graph, threads)
    if info.min_rows <= 1:
        return engine
    from speccompile.runtime.engines.padded import PaddedEngine

    return PaddedEngine(engine, info.min_rows)


def _open_backend(info: EngineInfo, graph: Path, threads: int) -> Engine:
    # Backends are imported here, so that a host needs only the one its artifact uses.
    if info.backend == "openvino":
        from speccompile.runtime.engines.openvino import OpenVINOEngine

        return OpenVINOEngine(info, graph, threads=threads)
    from speccompile.runtime.engines.onnxruntime import OnnxRuntimeEngine

    return OnnxRuntimeEngine(info, graph, threads=threads)
