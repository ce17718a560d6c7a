"""Recognize the contract's attention over a cache, and swap the graph's cache interface."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from speccompile.compiler.contract import WINDOW_KEY
from speccompile.compiler.graph import declare
from speccompile.compiler.lower.linear import stored_array
from speccompile.compiler.lower.passes import LoweringError

__all__ = [
    "CachedAttention",
    "cached_attentions",
    "extent",
    "position_ids",
    "replace_interface",
]

_CACHES = ("key_cache.", "value_cache.")


@dataclass(frozen=True)
class CachedAttention:
    """``Attention(query, TensorScatter(key_cache, key), TensorScatter(value_cache, value), mask)``.

    `query` is [B, H, N, D]; `key` and `value` are the new rows, [B, Hkv, N, D]; the caches are
    graph inputs [B, Hkv, S, D]. A row sees the last `window` positions, its own included, or all
    before it (None). Scores are ``softcap * tanh(scale * q k / softcap)``, without a softcap of 0.
    With a `position_bias` [B, H, N, S], of which the mask is made, that is added to them.
    """

    node: ir.Node
    query: ir.Value
    key: ir.Value
    value: ir.Value
    key_cache: ir.Value
    value_cache: ir.Value
    window: int | None
    position_bias: ir.Value | None

    @property
    def heads(self) -> int:
        """Query heads, read off the reshape that makes them."""
        node = self.query.producer()
        while node is not None and node.op_type != "Reshape":
            node = node.inputs[0].producer() if node.inputs[0] else None
        shape = node.inputs[1] if node else None
        if shape is None:
            raise LoweringError(f"{self.query.name}: the number of heads is not a constant")
        return int(stored_array(shape)[2])

    @property
    def kv_heads(self) -> int:
        return extent(self.key_cache, 1)

    @property
    def head_dim(self) -> int:
        return extent(self.key_cache, 3)

    @property
    def scale(self) -> float:
        return self.node.attributes["scale"].as_float()

    @property
    def softcap(self) -> float:
        return self.node.attributes["softcap"].as_float()


def cached_attentions(model: ir.Model) -> Iterator[CachedAttention]:
    """Every attention node of that form, in order."""
    window = int(model.metadata_props.get(WINDOW_KEY, 0)) or None
    for node in model.graph:
        if node.op_type == "Attention" and (found := _match(node, window)):
            yield found


def replace_interface(
    model: ir.Model, add: Sequence[ir.Value], outputs: Container[str | None]
) -> None:
    """Keep the outputs called `outputs` and the inputs that these need, with `add`, as far as they
    are new, before the caches."""
    graph = model.graph
    graph.outputs[:] = [value for value in graph.outputs if value.name in outputs]
    RemoveUnusedNodesPass()(model)
    new = [value for value in add if value not in graph.inputs]
    used = [value for value in graph.inputs if value.uses()]
    caches = [value for value in used if _is_cache(value)]
    graph.inputs[:] = [*(value for value in used if not _is_cache(value)), *new, *caches]


def position_ids(graph: ir.Graph) -> ir.Value:
    """Where rows stand, [B, N]: the graph's input or, where it has none, one to add."""
    given = next((value for value in graph.inputs if value.name == "position_ids"), None)
    return given or declare("position_ids", ir.DataType.INT64, ("B", "N"))


def extent(value: ir.Value, axis: int) -> int:
    """A static dimension of a graph's input or output."""
    if value.shape is None:
        raise ValueError(f"{value.name} has no shape")
    return int(value.shape[axis])  # type: ignore[arg-type]  # static by the contract


def _match(node: ir.Node, window: int | None) -> CachedAttention | None:
    if len(node.inputs) < 4:  # it attends to a source, all of which it sees
        return None
    query, keys, values, mask = node.inputs[:4]
    key_scatter = keys.producer() if keys else None
    value_scatter = values.producer() if values else None
    if query is None or mask is None or key_scatter is None or value_scatter is None:
        return None
    if key_scatter.op_type != "TensorScatter" or value_scatter.op_type != "TensorScatter":
        return None
    key_cache, key, _ = key_scatter.inputs
    value_cache, value, _ = value_scatter.inputs
    if key_cache is None or key is None or value_cache is None or value is None:
        return None
    seen = window if mask.name == "sliding_mask" else None
    biased = mask.producer()
    bias = biased.inputs[1] if biased and biased.op_type == "Where" else None
    return CachedAttention(node, query, key, value, key_cache, value_cache, seen, bias)


def _is_cache(value: ir.Value) -> bool:
    return str(value.name).startswith(_CACHES)
