"""Open the engine that an artifact names."""

from __future__ import annotations

from pathlib import Path

from speccompile.runtime.engine import Engine
from speccompile.runtime.engines.padded import PaddedEngine
from speccompile.runtime.manifest import EngineInfo

__all__ = ["open_engine"]


def open_engine(info: EngineInfo, graph: Path, *, threads: int = 0) -> Engine:
    """Open `graph` with the backend that `info` names; `threads` = 0 takes every core."""
    engine = _open_backend(info, graph, threads)
    return PaddedEngine(engine, info.min_rows) if info.min_rows > 1 else engine


def _open_backend(info: EngineInfo, graph: Path, threads: int) -> Engine:
    # Imported here, so that a host needs only the backend its artifact uses.
    if info.backend == "openvino":
        from speccompile.runtime.engines.openvino import OpenVINOEngine

        return OpenVINOEngine(info, graph, threads=threads)
    from speccompile.runtime.engines.onnxruntime import OnnxRuntimeEngine

    return OnnxRuntimeEngine(info, graph, threads=threads)
