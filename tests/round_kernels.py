"""What the kernels between the models of a round do, in numpy, on a host's addresses."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from speccompile.plugins.launches import Launch, ring_words
from speccompile.plugins.philox import uniform_bits
from speccompile.plugins.schema import INVALID
from speccompile.runtime.device_memory import host_array
from speccompile.runtime.sampling import Purpose

__all__ = ["int64s", "run_launch"]


def run_launch(launch: Launch) -> None:
    """Carry out a launch of `speccompile.plugins.launches`."""
    values = [argument.value or 0 for argument in launch.arguments]
    if launch.kernel == "draft_step":
        _draft_step(launch.grid[0], *values)
    elif launch.kernel == "keep_logits":
        _keep_logits(launch.grid[1], *values)
    else:
        assert launch.kernel == "commit"
        _commit(*values)


@lru_cache(1 << 14)
def int64s(address: int, *shape: int) -> NDArray[np.int64]:
    """The array at an address."""
    return host_array(address, math.prod(shape) * 8).view(np.int64).reshape(shape)


def _draft_step(
    batch: int,
    tokens_at: int,
    lengths_at: int,
    seeds_at: int,
    next_at: int,
    previous_at: int,
    fed_at: int,
    fed_lengths_at: int,
    fed_uniforms_at: int,
    uniforms_at: int,
    nodes: int,
    step: int,
) -> None:
    tokens, lengths = int64s(tokens_at, batch, nodes), int64s(lengths_at, batch)
    seeds = int64s(seeds_at, batch, 2).view(np.uint64)
    if next_at:
        tokens[:, step] = int64s(next_at, batch)
    if fed_at:
        width = 2 if previous_at else 1
        fed = int64s(fed_at, batch, width)
        fed[:, -1] = tokens[:, step]
        if previous_at:
            fed[:, 0] = int64s(previous_at, batch)
        int64s(fed_lengths_at, batch)[:] = lengths + step - (width - 1)
        drawn = _uniforms(seeds, lengths[:, None], Purpose.DRAFT, step + 1)
        int64s(fed_uniforms_at, batch, width, 2)[:, -1:, 1] = drawn
    if uniforms_at:
        roots, numbers = lengths[:, None], np.arange(nodes)
        pairs = int64s(uniforms_at, batch, nodes, 2)
        pairs[..., 0] = _uniforms(seeds, roots, Purpose.ACCEPT, numbers)
        pairs[..., 1] = _uniforms(seeds, roots + numbers + 1, Purpose.EMIT)


def _uniforms(
    seeds: NDArray[np.uint64],
    positions: NDArray[np.int64],
    purpose: Purpose,
    branch: ArrayLike = 0,
) -> NDArray[np.int64]:
    request = seeds[:, 1:]
    return uniform_bits(seeds[:, :1], positions, int(purpose), request=request, branch=branch)


def _keep_logits(
    batch: int, source: int, target: int, step: int, rows: int, nodes: int, width: int
) -> None:
    for sequence in range(batch):
        kept = host_array(target + (sequence * nodes + step) * width, width)
        kept[:] = host_array(source + (sequence * rows + rows - 1) * width, width)


def _commit(
    path_at: int,
    count_at: int,
    next_at: int,
    emitted_at: int,
    stopped_at: int,
    tokens_at: int,
    lengths_at: int,
    previous_at: int,
    round_at: int,
    ring_at: int,
    batch: int,
    nodes: int,
    slots: int,
) -> None:
    path, emitted = int64s(path_at, batch, nodes), int64s(emitted_at, batch, nodes)
    count, following = int64s(count_at, batch), int64s(next_at, batch)
    tokens, lengths = int64s(tokens_at, batch, nodes), int64s(lengths_at, batch)
    stopped, number = int64s(stopped_at, batch), int64s(round_at, 1)
    ring = int64s(ring_at, batch, slots, ring_words(nodes))
    for b in range(batch):
        added = 0 if following[b] == INVALID or stopped[b] else int(count[b])
        record = ring[b, number[0] % slots]
        record[0], record[1], record[2:] = number[0] + 1, added, INVALID
        if added:
            record[2:] = emitted[b]
            lengths[b] += added
            int64s(previous_at, batch)[b] = tokens[b, path[b, added - 1]]
            tokens[b, 0] = following[b]
    number += 1
