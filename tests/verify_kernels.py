"""What the kernels of the verify operators do, in numpy, on a host's addresses; and all others."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.launches import Launch
from speccompile.plugins.schema import RULES
from speccompile.plugins.tree import tree_mask
from speccompile.runtime.device_memory import host_array
from tests.round_kernels import int64s, run_launch
from tests.trees import Rounds, verdicts

__all__ = ["run_any_launch"]


def run_any_launch(launch: Launch) -> None:
    """Carry out a launch of `speccompile.plugins.launches`; logits are fp16."""
    values = [argument.value or 0 for argument in launch.arguments]
    if launch.kernel == "walk_float16":
        _walk(launch.grid[0], *values)
    elif launch.kernel == "tree_mask":
        _tree_mask(launch.grid[1], *values)
    elif launch.kernel != "rows_float16":  # whose results are `_walk`'s own
        run_launch(launch)


def _walk(
    batch: int,
    logits_at: int,
    draft_at: int,
    tokens_at: int,
    parents_at: int,
    given_at: int,
    uniforms_at: int,
    sampling_at: int,
    workspace: int,
    path_at: int,
    count_at: int,
    next_at: int,
    emitted_at: int,
    nodes: int,
    vocabulary: int,
    rule: int,
) -> None:
    assert workspace
    logits = _array(logits_at, np.float16, batch, nodes, vocabulary)
    rounds = Rounds(
        tokens=int64s(tokens_at, batch, nodes),
        parents=int64s(parents_at, batch, nodes),
        given=int64s(given_at, batch),
        lengths=np.zeros(batch, np.int64),
        logits=logits,
        draft_logits=_array(draft_at, np.float16, *logits.shape) if draft_at else logits,
        uniforms=int64s(uniforms_at, batch, nodes, 2),
        sampling=_array(sampling_at, np.float32, batch, 4),
    )
    found = verdicts(RULES[rule], rounds)
    int64s(path_at, batch, nodes)[:] = found["path"]
    int64s(count_at, batch)[:] = found["count"]
    int64s(next_at, batch)[:] = found["next_token"]
    int64s(emitted_at, batch, nodes)[:] = found["emitted"]


def _tree_mask(
    batch: int,
    parents_at: int,
    lengths_at: int,
    positions_at: int,
    mask_at: int,
    sliding_at: int,
    nodes: int,
    capacity: int,
    window: int,
) -> None:
    parents, lengths = int64s(parents_at, batch, nodes), int64s(lengths_at, batch)
    positions, mask, sliding = tree_mask(parents, lengths, capacity, window)
    int64s(positions_at, batch, nodes)[:] = positions
    _array(mask_at, np.bool_, *mask.shape)[:] = mask
    if sliding_at:
        _array(sliding_at, np.bool_, *mask.shape)[:] = sliding


def _array(address: int, dtype: type[np.generic], *shape: int) -> NDArray[Any]:
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return host_array(address, size).view(dtype).reshape(shape)
