"""Relative position bias (T5, arXiv 1910.10683): which of its buckets a distance falls into, and
the ONNX nodes that look it up."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from speccompile.compiler.decoder import PositionBias
from speccompile.compiler.graph import GraphBuilder

__all__ = ["bias_of_distances", "position_buckets"]


def bias_of_distances(
    graph: GraphBuilder,
    bias: PositionBias,
    table: ir.Value,
    path: str,
    distances: ir.Value,
    both_ways: bool,
) -> ir.Value:
    """[B, H, N, S] of `distances` [B, N, S]: how far a key lies before its query or, `both_ways`,
    behind it, which may be negative. `table` [buckets, H] is stored; nodes are under `path`."""
    most, least = bias.max_distance, -bias.max_distance if both_ways else 0
    buckets = graph.constant(f"{path}.buckets", position_buckets(bias, both_ways=both_ways))
    by_distance = graph.op("Gather", f"{path}/by_distance", table, buckets, axis=0)
    ends = (graph.constant(f"distance.{end}", np.array(end)) for end in (least, most))
    distances = graph.op("Clip", f"{path}/Clip", distances, *ends)
    if both_ways:
        first = graph.constant(f"distance.{most}", np.array(most))
        distances = graph.op("Add", f"{path}/index", distances, first)
    rows = graph.op("Gather", f"{path}/Gather", by_distance, distances, axis=0)
    return graph.op("Transpose", path, rows, perm=[0, 3, 1, 2])


def position_buckets(bias: PositionBias, *, both_ways: bool) -> NDArray[np.int64]:
    """The bucket of every distance; those beyond the last entry fall into its bucket too.

    Entry d [max_distance + 1] is for a key d places before its query. `both_ways`, entry
    max_distance + d [2 max_distance + 1] is for one d places behind it, before it where d is
    negative; each direction then has half of the buckets.
    """
    distances = np.arange(bias.max_distance + 1)
    if not both_ways:
        return _one_way(distances, bias.buckets, bias.max_distance)
    half = bias.buckets // 2
    buckets = _one_way(distances, half, bias.max_distance)
    return np.concatenate([buckets[:0:-1], buckets[:1], half + buckets[1:]])


def _one_way(distances: NDArray[np.int64], buckets: int, most: int) -> NDArray[np.int64]:
    """The first half of the buckets are single distances, the others grow by a constant factor."""
    single = buckets // 2
    # In fp32, as the models were trained: a boundary may lie elsewhere in fp64.
    ratio = np.maximum(distances, single).astype(np.float32) / np.float32(single)
    steps = np.log(ratio) / np.float32(np.log(most / single)) * np.float32(buckets - single)
    wide = np.minimum(single + steps.astype(np.int64), buckets - 1)
    return np.where(distances < single, distances, wide)
