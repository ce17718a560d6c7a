"""Recognize the contract's attention over a cache, and swap the graph's cache interface."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir

__all__ = ["CachedAttention", "cached_attentions", "replace_inputs"]


@dataclass(frozen=True)
class CachedAttention:
    """``Attention(query, TensorScatter(key_cache, key), TensorScatter(value_cache, value), mask)``.

    `query` is [B, H, N, D]; `key` and `value` are the new rows, [B, Hkv, N, D]; the caches are
    graph inputs [B, Hkv, S, D].
    """

    node: ir.Node
    query: ir.Value
    key: ir.Value
    value: ir.Value
    key_cache: ir.Value
    value_cache: ir.Value

    @property
    def kv_heads(self) -> int:
        return _extent(self.key_cache, 1)

    @property
    def head_dim(self) -> int:
        return _extent(self.key_cache, 3)


def cached_attentions(graph: ir.Graph) -> Iterator[CachedAttention]:
    """Every attention node of that form, in order."""
    for node in graph:
        if node.op_type == "Attention" and (found := _match(node)):
            yield found


def replace_inputs(
    graph: ir.Graph, drop: frozenset[str], add: Sequence[ir.Value], outputs: frozenset[str]
) -> None:
    """Drop the inputs called `drop`, put `add` before the caches, keep only `outputs`."""
    kept = [value for value in graph.inputs if value.name not in drop]
    scalars = [value for value in kept if not _is_cache(value)]
    caches = [value for value in kept if _is_cache(value)]
    graph.inputs[:] = [*scalars, *add, *caches]
    graph.outputs[:] = [value for value in graph.outputs if value.name in outputs]


def _match(node: ir.Node) -> CachedAttention | None:
    query, keys, values, *_ = node.inputs
    key_scatter = keys.producer() if keys else None
    value_scatter = values.producer() if values else None
    if query is None or key_scatter is None or value_scatter is None:
        return None
    if key_scatter.op_type != "TensorScatter" or value_scatter.op_type != "TensorScatter":
        return None
    key_cache, key, _ = key_scatter.inputs
    value_cache, value, _ = value_scatter.inputs
    if key_cache is None or key is None or value_cache is None or value is None:
        return None
    return CachedAttention(node, query, key, value, key_cache, value_cache)


def _is_cache(value: ir.Value) -> bool:
    return str(value.name).startswith(("key_cache.", "value_cache."))


def _extent(value: ir.Value, axis: int) -> int:
    if value.shape is None:
        raise ValueError(f"{value.name} has no shape")
    return int(value.shape[axis])  # type: ignore[arg-type]  # static by the contract
