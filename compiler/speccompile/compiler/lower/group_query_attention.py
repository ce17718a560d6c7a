"""ONNX Runtime: rotary embedding, cache update and attention become one `GroupQueryAttention`.

The node takes the packed rows of q, k and v, [B, N, (H + 2 Hkv) D], and updates the caches in place
when the runtime binds one buffer as input and output. Positions and visibility follow from
``seqlens_k`` [B] (cache length after this step, minus one) and ``total_sequence_length`` []: a
lowered graph takes chains of proposals only.
"""

from __future__ import annotations

import onnx_ir as ir

from speccompile.compiler.graph import CONTRIB_DOMAIN, GraphBuilder, declare
from speccompile.compiler.lower.cached_attention import (
    CachedAttention,
    cached_attentions,
    replace_inputs,
)
from speccompile.compiler.lower.passes import LoweringError, Pass

__all__ = ["GROUP_QUERY_ATTENTION"]


def _rewrite(model: ir.Model) -> int:
    graph = model.graph
    lengths = declare("seqlens_k", ir.DataType.INT32, ("B",))
    total = declare("total_sequence_length", ir.DataType.INT32, ())
    found = list(cached_attentions(graph))
    outputs = {str(value.name): value for value in graph.outputs}
    for attention in found:
        rotary = _rotary(attention.query)
        packed = _packed_rows(attention)
        builder = GraphBuilder()
        mixed, keys, values = builder.split(
            "GroupQueryAttention",
            f"{attention.node.name}/GroupQuery",
            packed,
            None,
            None,
            attention.key_cache,
            attention.value_cache,
            lengths,
            total,
            rotary.inputs[1],
            rotary.inputs[2],
            outputs=3,
            domain=CONTRIB_DOMAIN,
            num_heads=_heads(attention.query),
            kv_num_heads=attention.kv_heads,
            do_rotary=1,
        )
        builder.splice(graph, attention.node)
        for cache, updated in ((attention.key_cache, keys), (attention.value_cache, values)):
            old = outputs[f"new_{cache.name}"]
            updated.type, updated.shape = old.type, old.shape
            graph.outputs[list(graph.outputs).index(old)] = updated
            old.name, updated.name = f"{old.name}.replaced", f"new_{cache.name}"
        _merged_heads(attention).replace_all_uses_with(mixed)
    kept = frozenset(str(value.name) for value in graph.outputs)
    dropped = frozenset({"attention_mask", "write_index", "position_ids"})
    replace_inputs(graph, dropped, [lengths, total], kept)
    return len(found)


def _rotary(query: ir.Value) -> ir.Node:
    node = query.producer()
    if node is None or node.op_type != "RotaryEmbedding":
        raise LoweringError(f"{query.name} is not rotated: GroupQueryAttention expects RoPE")
    return node


def _packed_rows(attention: CachedAttention) -> ir.Value:
    """The output of the fused projection, from which q, k and v were split."""
    rows: ir.Value | None = attention.value
    for kind in ("Transpose", "Reshape", "Split"):
        node = rows.producer() if rows else None
        if node is None or node.op_type != kind:
            raise LoweringError(f"{attention.node.name}: q, k and v are not one fused projection")
        rows = node.inputs[0]
    if rows is None:
        raise LoweringError(f"{attention.node.name}: the projection has no rows")
    return rows


def _heads(query: ir.Value) -> int:
    """Query heads, read off the reshape before the rotation."""
    node = query.producer()
    for _ in range(2):
        node = node.inputs[0].producer() if node and node.inputs[0] else None
    shape = node.inputs[1].const_value if node and node.inputs[1] else None
    if shape is None:
        raise LoweringError(f"{query.name}: the number of heads is not a constant")
    return int(shape.numpy()[2])


def _merged_heads(attention: CachedAttention) -> ir.Value:
    """[B, N, H D] after the contract's transpose and reshape, which the operator does itself."""
    (transpose,) = attention.node.outputs[0].consumers()
    (reshape,) = transpose.outputs[0].consumers()
    return reshape.outputs[0]


GROUP_QUERY_ATTENTION = Pass(
    "group_query_attention",
    _rewrite,
    requires=frozenset({"Attention", "TensorScatter", "RotaryEmbedding", "Split"}),
    ensures=frozenset({"GroupQueryAttention"}),
    removes=frozenset({"Attention", "TensorScatter", "RotaryEmbedding"}),
)
