"""How long the kernels take, beside what they move: the formulas at the head of each ``.cu``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.launches import (
    Launch,
    compact_launches,
    keep_logits_launches,
    tree_mask_launches,
    verify_launches,
    verify_workspace,
)
from speccompile.plugins.schema import Rule
from speccompile.runtime.device import Device
from tests.gpu.arena import Arena
from tests.gpu.opening import open_cuda
from tests.gpu.sections import Task
from tests.gpu.timing import Clock, ColdCache, CudaClock, replayed

__all__ = ["Bench", "measure_rows", "measure_state", "run"]

_ARENA = 64 << 20
_COPY = 512 << 20
_VOCABULARIES, _NODES = (49152, 152064), (1, 8, 64)
# Temperature, top-k, top-p, min-p.
_LAWS: Mapping[str, tuple[float, ...]] = {
    "greedy": (0.0, 0, 1.0, 0.0),
    "sampled": (1.0, 0, 1.0, 0.0),
    "filtered": (0.8, 50, 0.9, 0.0),
}


def run(task: Task) -> None:
    with open_cuda(task) as device:
        clock = CudaClock(device)
        bench = Bench(device, clock, clock.attribute("L2_CACHE_SIZE"), _peak(device, clock, task))
        arena = Arena(device, _ARENA)
        for vocabulary in _VOCABULARIES:
            for nodes in _NODES:
                if task.has_time(0.8):
                    measure_rows(bench, arena, task, vocabulary, nodes)
        measure_state(bench, arena, task)


class Bench:
    """Times launches; `peak` is the bandwidth to compare with, in bytes a second."""

    def __init__(self, device: Device, clock: Clock, cache_bytes: int, peak: float) -> None:
        self.device = device
        self._clock, self._peak = clock, peak
        self._cold = ColdCache(device, clock, cache_bytes)

    def figures(self, launch: Launch, moved: int) -> dict[str, float]:
        """Of a launch that moves so many bytes between memory and multiprocessors."""

        def work() -> None:
            self.device.launch(launch)

        warm, cold = replayed(self.device, self._clock, work), self._cold.seconds(work)
        return {
            "bytes": moved,
            "us_warm": round(warm * 1e6, 2),
            "us_cold": round(cold * 1e6, 2),
            "gb_per_s_warm": round(moved / warm * 1e-9, 1),
            "gb_per_s_cold": round(moved / cold * 1e-9, 1),
            "percent_of_copy_cold": round(100 * moved / cold / self._peak, 1),
        }


def measure_rows(bench: Bench, arena: Arena, task: Task, vocabulary: int, nodes: int) -> None:
    """SpecVerify in fp16: chains, greedy and drawn from the laws of both models."""
    rng = np.random.default_rng(nodes)
    logits = (2 * rng.standard_normal((1, nodes, vocabulary), np.float32)).astype(np.float16)
    noise = rng.standard_normal(logits.shape, np.float32).astype(np.float16)
    draft_logits = logits + np.float16(0.5) * noise
    arrays: dict[str, NDArray[Any]] = {
        "logits": logits,
        "draft_logits": draft_logits,
        "tokens": np.roll(draft_logits.argmax(-1), 1, axis=1),
        "parents": np.arange(-1, nodes - 1)[None],
        "given": np.ones(1, np.int64),
        "uniforms": rng.integers(0, 2**53, (1, nodes, 2)),
        "sampling": np.zeros((1, 4), np.float32),
        **{name: np.zeros((1, nodes), np.int64) for name in ("path", "emitted")},
        **{name: np.zeros(1, np.int64) for name in ("count", "next_token")},
        "workspace": np.zeros(verify_workspace(1, nodes), np.uint8),
    }
    for law, sampling in _LAWS.items():
        rule: Rule = "greedy" if law == "greedy" else "traversal"
        arrays["sampling"][:] = sampling
        at = arena.place(arrays)
        if rule == "greedy":
            at = {name: at[name] for name in at if name not in ("sampling", "draft_logits")}
        rows, walk = verify_launches(rule, "float16", 1, nodes, vocabulary, at, at["workspace"])
        bench.device.launch(rows)
        bench.device.launch(walk)
        count = int(arena.read("count")["count"][0])
        row = 2 * vocabulary
        # The draft's row behind the leaf is not read.
        read = (nodes if rule == "greedy" else 2 * nodes - 1) * row
        rejected = nodes - count
        drawn = 0 if rule == "greedy" else (2 * rejected + (2 if rejected else 1)) * row
        what = f"fp16 V={vocabulary} N={nodes} {law}"
        task.note(f"rows {what}", bench.figures(rows, read))
        task.note(f"walk {what}", {"accepted": count - 1, **bench.figures(walk, drawn)})


def measure_state(bench: Bench, arena: Arena, task: Task) -> None:
    """What stands around the models: a mask, a kept row, a path moved to the front."""
    nodes, capacity, vocabulary = 64, 4096, 152064
    at = arena.place(
        {
            "parents": np.arange(-1, nodes - 1)[None],
            "lengths": np.array([1000]),
            "position_ids": np.zeros((1, nodes), np.int64),
            "attention_mask": np.zeros((1, 1, nodes, capacity), np.bool_),
            "sliding_mask": np.zeros((1, 1, nodes, capacity), np.bool_),
        }
    )
    [mask] = tree_mask_launches(1, nodes, capacity, 1024, at)
    figures = bench.figures(mask, 2 * nodes * capacity + 8 * nodes)
    task.note(f"tree_mask N={nodes} S={capacity}", figures)

    logits = np.zeros((1, 1, vocabulary), np.float16)
    kept = np.zeros((1, 8, vocabulary), np.float16)
    at = arena.place({"logits": logits, "draft_logits": kept})
    [keep] = keep_logits_launches("float16", 1, 3, 1, 8, vocabulary, at)
    task.note(f"keep_logits V={vocabulary}", bench.figures(keep, 2 * logits.nbytes))

    # A path of every other node, in the caches of 24 layers.
    layers, heads, width, accepted = 24, 8, 128, 8
    path = np.full((1, 2 * accepted), -1)
    path[0, :accepted] = 2 * np.arange(accepted)
    arrays: dict[str, NDArray[Any]] = {
        "table": np.zeros(2 * layers, np.int64),
        "path": path,
        "count": np.array([accepted]),
        "lengths": np.array([8]),
        "caches": np.zeros((2 * layers, heads, 32, width), np.float16),
    }
    at = arena.place(arrays)
    size = arrays["caches"].nbytes // (2 * layers)
    arrays["table"][:] = at["caches"] + size * np.arange(2 * layers)
    at = arena.place(arrays)
    sizes = 1, 2 * accepted, heads, 32, 2 * width
    [compact] = compact_launches(*sizes, at["table"], 2 * layers, at)
    moved = 2 * (2 * width) * (2 * layers) * heads * (accepted - 1)
    task.note(f"compact_rows {accepted} rows of {layers} layers", bench.figures(compact, moved))


def _peak(device: Device, clock: CudaClock, task: Task) -> float:
    """Bytes a second of a large copy, read and written."""
    size = min(_COPY, device.memory().free // 8)
    source, target = device.allocate(size), device.allocate(size)
    copy: Callable[[], None] = lambda: clock.copy(target, source, size)  # noqa: E731
    seconds = min(clock.seconds(copy) for _ in range(10))
    peak = 2 * size / seconds
    clock_khz, bus = (
        clock.attribute("MEMORY_CLOCK_RATE"),
        clock.attribute("GLOBAL_MEMORY_BUS_WIDTH"),
    )
    figures: dict[str, object] = {
        "copy_gb_per_s": round(peak * 1e-9, 1),
        "multiprocessors": clock.attribute("MULTIPROCESSOR_COUNT"),
        "l2_bytes": clock.attribute("L2_CACHE_SIZE"),
    }
    if clock_khz and bus:  # newer drivers may not tell
        figures["rated_gb_per_s"] = round(2 * clock_khz * 1e3 * bus / 8 * 1e-9, 1)
    task.note("memory", figures)
    return peak
