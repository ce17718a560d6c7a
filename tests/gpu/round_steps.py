"""What stands between the models of a round, on a GPU against numpy's: Philox and commits too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.launches import (
    Launch,
    commit_launches,
    draft_step_launches,
    keep_logits_launches,
    ring_words,
    uniforms_launches,
)
from speccompile.plugins.philox import uniform_bits
from speccompile.runtime.device import Device
from tests.gpu.arena import Arena
from tests.gpu.sections import Task
from tests.round_kernels import run_launch

__all__ = ["check_rounds"]

_BATCH, _SLOTS, _VOCABULARY = 5, 2, 77
_ACCEPT = 1

Arrays = dict[str, NDArray[Any]]
Launches = Callable[[Mapping[str, int]], list[Launch]]


def check_rounds(device: Device, arena: Arena, task: Task, *, cases: int) -> int:
    """Chains of random state; returns how many steps were compared."""
    steps = 0
    for seed in range(cases):
        rng = np.random.default_rng(seed)
        nodes = int(rng.integers(1, 70))
        for what, arrays, launches in _steps(rng, nodes):
            _compare(device, arena, task, f"{what}, {nodes} nodes, seed {seed}", arrays, launches)
            steps += 1
    return steps


def _steps(rng: np.random.Generator, nodes: int) -> list[tuple[str, Arrays, Launches]]:
    state, last = _state(rng, nodes), nodes - 1
    inner = int(rng.integers(0, nodes))
    caught_up = {**_state(rng, nodes), "catch_up": np.full((_BATCH, 2), -5)}
    caught_up["draft_uniforms"] = np.full((_BATCH, 2, 2), -5)
    logits = rng.normal(size=(_BATCH, 2, _VOCABULARY)).astype(np.float16)
    kept: Arrays = {
        "logits": logits,
        "draft_logits": np.zeros((_BATCH, nodes, _VOCABULARY), np.float16),
    }
    keep = "float16", _BATCH, inner, 2, nodes, _VOCABULARY
    return [
        ("draft_step", state, lambda at: draft_step_launches(_BATCH, inner, nodes, at)),
        ("the last draft_step", state, lambda at: draft_step_launches(_BATCH, last, nodes, at)),
        ("catching up", caught_up, lambda at: draft_step_launches(_BATCH, 0, nodes, at)),
        ("uniforms", state, lambda at: uniforms_launches(_BATCH, nodes, at)),
        ("keep_logits", kept, lambda at: keep_logits_launches("float16", *keep[1:], at)),
        ("commit", state, lambda at: commit_launches(_BATCH, nodes, _SLOTS, at)),
    ]


def _state(rng: np.random.Generator, nodes: int) -> Arrays:
    seeds = rng.integers(-(2**63), 2**63 - 1, (_BATCH, 2))
    seeds[:, 1] = rng.integers(0, 2**32, _BATCH)
    count = rng.integers(1, nodes + 1, _BATCH)
    path = np.where(np.arange(nodes) < count[:, None], np.arange(nodes), -1)
    emitted = rng.integers(0, 100, (_BATCH, nodes))
    return {
        "tokens": rng.integers(0, 100, (_BATCH, nodes)),
        "lengths": rng.integers(0, 2**34, _BATCH),
        "previous": rng.integers(0, 100, _BATCH),
        "seeds": seeds,
        "stopped": (rng.random(_BATCH) < 0.3).astype(np.int64),
        "round": rng.integers(0, 2**40, 1),
        "ring": np.zeros((_BATCH, _SLOTS, ring_words(nodes)), np.int64),
        "path": path,
        "count": count,
        "next_token": np.where(rng.random(_BATCH) < 0.2, -1, rng.integers(0, 100, _BATCH)),
        "emitted": np.where(np.arange(nodes) < count[:, None], emitted, -1),
        "draft_input": np.full((_BATCH, 1), -5),
        "draft_lengths": np.full(_BATCH, -5),
        "draft_uniforms": np.full((_BATCH, 1, 2), -5),
        "draft_next_token": rng.integers(0, 100, _BATCH),
        "uniforms": np.full((_BATCH, nodes, 2), -5),
    }


def _compare(
    device: Device, arena: Arena, task: Task, what: str, arrays: Arrays, launches: Launches
) -> None:
    for launch in launches(arena.place(arrays)):
        device.launch(launch)
    found = arena.read()
    expected = {name: array.copy() for name, array in arrays.items()}
    for launch in launches({name: array.ctypes.data for name, array in expected.items()}):
        run_launch(launch)
    for name, array in expected.items():
        if not np.array_equal(found[name], array):
            task.compare(f"{what}, {name}", found[name].tolist(), array.tolist())
    if what.startswith("uniforms"):
        roots, numbers = arrays["lengths"][:, None], np.arange(arrays["tokens"].shape[1])
        seeds = arrays["seeds"].view(np.uint64)
        drawn = uniform_bits(seeds[:, :1], roots, _ACCEPT, request=seeds[:, 1:], branch=numbers)
        task.compare(f"{what}, Philox", found["uniforms"][..., 0].tolist(), drawn.tolist())
