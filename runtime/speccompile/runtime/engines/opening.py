"""Open the engine that an artifact names."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from speccompile.runtime.engine import CacheSharer, Encoder, Engine
from speccompile.runtime.engines.padded import PaddedEngine
from speccompile.runtime.engines.restricted import RestrictedEngine, read_token_ids
from speccompile.runtime.errors import EngineError
from speccompile.runtime.manifest import EngineInfo

__all__ = ["open_encoder", "open_engine"]


def open_engine(
    info: EngineInfo,
    graph: Path,
    *,
    threads: int = 0,
    cache_of: Engine | None = None,
    encoder: Encoder | None = None,
) -> Engine:
    """Open `graph` with the backend that `info` names; `threads` = 0 takes every core.

    The file of `info.token_ids` lies beside `graph`. With `cache_of`, an engine of the same backend
    and dimensions, the two share one cache, or that of the layers that `graph` has. `encoder`, of
    `open_encoder`, reads the source of a decoder that has one.
    """
    if isinstance(cache_of, PaddedEngine):
        cache_of = cache_of.engine
    engine: CacheSharer
    if info.token_ids is None:
        engine = _open_backend(info, graph, threads, cache_of, encoder)
    else:
        ids = read_token_ids(graph.with_name(Path(info.token_ids).name), info.vocab_size)
        computed = replace(info, vocab_size=len(ids))
        engine = _open_backend(computed, graph, threads, cache_of, encoder)
        engine = RestrictedEngine(engine, ids, info.vocab_size)
    return PaddedEngine(engine, info.min_rows) if info.min_rows > 1 else engine


def open_encoder(info: EngineInfo, graph: Path, *, threads: int = 0) -> Encoder:
    """Open the encoder of the model that `info` is of; it has read nothing yet."""
    if info.backend != "onnxruntime":
        raise EngineError(f"{graph}: {info.backend} runs no encoders here; build with onnxruntime")
    from speccompile.runtime.engines.encoder import OnnxRuntimeEncoder

    return OnnxRuntimeEncoder(graph, threads=threads)


def _open_backend(
    info: EngineInfo,
    graph: Path,
    threads: int,
    cache_of: Engine | None,
    encoder: Encoder | None,
) -> CacheSharer:
    # Imported here, so that a host needs only the backend its artifact uses.
    if info.backend == "openvino":
        from speccompile.runtime.engines.openvino import OpenVINOEngine

        if cache_of is None or isinstance(cache_of, OpenVINOEngine):
            return OpenVINOEngine(info, graph, threads=threads, cache_of=cache_of)
    else:
        from speccompile.runtime.engines.encoder import OnnxRuntimeEncoder
        from speccompile.runtime.engines.onnxruntime import OnnxRuntimeEngine

        reader = encoder if isinstance(encoder, OnnxRuntimeEncoder) else None
        if cache_of is None or isinstance(cache_of, OnnxRuntimeEngine):
            return OnnxRuntimeEngine(
                info, graph, threads=threads, cache_of=cache_of, encoder=reader
            )
    raise EngineError(f"{graph}: {info.backend} cannot share the cache of another engine")
