"""How fast this machine reads memory and multiplies matrices: what nothing on it can pass."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from speccompile.runtime import host

__all__ = ["Limit", "last_level_bytes", "measure_limit"]

_SECONDS = 0.6  # for each of the two measurements
_LEAST_BYTES = 256 << 20
_TIMES_CACHE = 8  # so much larger than the caches is what is read: little of it stays in them
_SIDE = 1024  # of the matrices: 4 MB each, as large as a layer's
_CACHES = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Limit:
    """`bandwidths` are in bytes a second, the best sweep of each measurement; `gemm` is in floating
    point operations a second, None where nothing here measures it. All with so many `threads`."""

    threads: int
    bandwidths: tuple[float, ...]
    gemm: float | None

    @property
    def bandwidth(self) -> float:
        return max(self.bandwidths)

    @property
    def uncertainty(self) -> float:
        """How far apart the measurements are, as a share of the best."""
        return 1.0 - min(self.bandwidths) / self.bandwidth

    @property
    def balanced_rows(self) -> float | None:
        """From so many rows on, a step with fp32 weights takes longer to multiply than to read
        them: an operation each for product and sum, by row, against 4 bytes."""
        return None if self.gemm is None else 4 * self.gemm / (2 * self.bandwidth)

    def joined(self, other: Limit) -> Limit:
        """Both measurements together."""
        rates = [rate for rate in (self.gemm, other.gemm) if rate is not None]
        gemm = max(rates, default=None)
        return Limit(self.threads, (*self.bandwidths, *other.bandwidths), gemm)


def measure_limit(threads: int = 0) -> Limit:
    """Measure, which takes a second or two; `threads` = 0 takes every core.

    Bandwidth: every thread reads its part of an array, much larger than the last-level cache, again
    and again (numpy's largest int32, which waits for memory alone); the best sweep counts. GEMM:
    the product of two fp32 matrices in OpenVINO, as its engines compute; the best one counts.
    """
    threads = threads or host.describe().cores
    return Limit(threads, (_bandwidth(threads),), _gemm(threads))


def _bandwidth(threads: int) -> float:
    size = max(_LEAST_BYTES, _TIMES_CACHE * last_level_bytes())
    # Written: pages that never were are all the same one, which the cache holds.
    numbers = np.ones(size // 4, np.int32)
    parts = np.array_split(numbers, threads)
    with ThreadPoolExecutor(threads, "sweep") as pool:
        seconds = _best(lambda: list(pool.map(np.max, parts)))
    return numbers.nbytes / seconds


def _gemm(threads: int) -> float | None:
    if find_spec("openvino") is None:
        return None
    import openvino as ov
    from openvino import opset13 as ops

    left = ops.parameter([_SIDE, _SIDE], np.float32)
    right = ops.constant(np.ones((_SIDE, _SIDE), np.float32))
    product = [ops.matmul(left, right, False, True)]
    # The library's own stubs take its Model for two classes.
    model = ov.Model(product, [left], "gemm")  # pyright: ignore[reportGeneralTypeIssues]
    compiled = ov.Core().compile_model(
        model,
        "CPU",
        {
            "PERFORMANCE_HINT": "LATENCY",
            "NUM_STREAMS": "1",
            "INFERENCE_NUM_THREADS": str(threads),
            "INFERENCE_PRECISION_HINT": "f32",
        },
    )
    request = compiled.create_infer_request()
    request.set_input_tensor(ov.Tensor(np.ones((_SIDE, _SIDE), np.float32)))
    return 2 * _SIDE**3 / _best(request.infer)


def _best(work: Callable[[], object]) -> float:
    """The shortest time of `work`, done as often as there is time for, in seconds."""
    best, end = np.inf, time.perf_counter() + _SECONDS
    while (start := time.perf_counter()) < end or best == np.inf:
        work()
        best = min(best, time.perf_counter() - start)
    return float(best)


def last_level_bytes() -> int:
    """Of all last-level caches together, as far as the kernel tells; 0 where it does not."""
    found: dict[tuple[int, str], int] = {}
    for folder in _CACHES.glob("cpu[0-9]*/cache/index[0-9]*"):
        try:
            level = int((folder / "level").read_text())
            size = (folder / "size").read_text().strip()
            found[level, (folder / "shared_cpu_list").read_text()] = int(size.rstrip("K")) << 10
        except (OSError, ValueError):
            continue
    last = max((level for level, _ in found), default=0)
    return sum(size for (level, _), size in found.items() if level == last)
