"""Open the target of an artifact for several sequences."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from speccompile.runtime.batch_engine import BatchEngine
from speccompile.runtime.engine import Engine
from speccompile.runtime.engines.padded import PaddedEngine
from speccompile.runtime.engines.turns import TurnsEngine
from speccompile.runtime.errors import EngineError
from speccompile.runtime.manifest import EngineInfo

__all__ = ["open_batch_engine"]

_PAGE_ROWS = 32


def open_batch_engine(
    info: EngineInfo, graph: Path, *, sequences: int, threads: int = 0
) -> BatchEngine[Any]:
    """Open `graph`; `threads` = 0 takes every core.

    One call computes the rows of all sequences where the graph attends in pages; there is memory
    for `sequences` of full length, and so for more that are shorter. Otherwise every sequence has
    caches of its own, made when it is the first to need them, and they take turns. Weights are
    held once. Raises EngineError.
    """
    if info.encoder is not None:
        raise EngineError(f"{graph}: a batch has no sources; decode each in a session of its own")
    # Imported here, so that a host needs only the backend its artifact uses.
    if info.backend == "openvino":
        from speccompile.runtime.engines.openvino import OpenVINOEngine
        from speccompile.runtime.engines.openvino_batch import PagedEngine, UnpagedError

        pages = sequences * -(-info.capacity // _PAGE_ROWS)
        try:
            return PagedEngine(info, graph, pages=pages, threads=threads)
        except UnpagedError:
            first = OpenVINOEngine(info, graph, threads=threads)
            return _in_turns(first, first.another, info.min_rows)
    from speccompile.runtime.engines.onnxruntime import OnnxRuntimeEngine

    only = OnnxRuntimeEngine(info, graph, threads=threads)
    return _in_turns(only, only.another, info.min_rows)


def _in_turns(first: Engine, another: Callable[[], Engine], min_rows: int) -> TurnsEngine:
    def padded(engine: Engine) -> Engine:
        return PaddedEngine(engine, min_rows) if min_rows > 1 else engine

    return TurnsEngine(padded(first), lambda: padded(another()))
