"""How precisely an engine keeps its key-value cache."""

from __future__ import annotations

from speccompile.runtime.manifest import EngineInfo

__all__ = ["cache_number_bytes"]


def cache_number_bytes(info: EngineInfo) -> int:
    """Bytes of a number in the caches: 4 or 2."""
    if info.backend == "onnxruntime":
        return 4
    # A draft's own cache may round to fp16: it is never what decides. A target's, and one that is
    # shared with it, may not; but where the arithmetic is bf16, so is the cache.
    exact = info.role == "target" or info.shares_cache
    return 4 if exact and info.arithmetic == "fp32" else 2
