"""ONNX Runtime: rotary embedding, cache update and attention become one `GroupQueryAttention`.

The node reads q, k and v from one fused projection, [B, N, (H + 2 Hkv) D], or apart where norms
stand between (the operator has inputs for these, which ONNX Runtime refuses on CPU). It updates the
caches in place when the runtime binds one buffer as input and output. Its inputs replace those of
the contract:

=====================  =============  =======  ====================================================
input                  shape          type     meaning
=====================  =============  =======  ====================================================
position_ids           [B, N]         int64    as in the contract; the operator rotates by it too
attention_bias         [B, 1, N, T]   float32  added to the scores: 0, or the lowest number for
                                               slots that a row of a tree does not see
sliding_bias           [B, 1, N, T]   float32  the same for sliding layers, the window in it
seqlens_k              [B]            int32    cache length after this step, minus one
total_sequence_length  []             int32    T, the slots that a bias speaks of
=====================  =============  =======  ====================================================

A position bias is added to `attention_bias` once, for all layers. What attends to a source stays
`Attention`: there is nothing to cache.

By itself the operator lets row n see every slot up to its own. Its window counts slots, which in a
tree are not positions: it is set as much wider as a tree may have rows, and only saves work.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from speccompile.compiler.graph import CONTRIB_DOMAIN, GraphBuilder, declare
from speccompile.compiler.lower.cached_attention import (
    CachedAttention,
    cached_attentions,
    replace_interface,
)
from speccompile.compiler.lower.linear import dimensions
from speccompile.compiler.lower.passes import Pass

__all__ = ["GROUP_QUERY_ATTENTION"]

_TREE_ROWS = 128  # the most that the runtime gives sliding layers
_TABLE_STEP = 8  # the operator rotates pairs of channels in such steps only, on CPU


def _rewrite(model: ir.Model) -> int:
    graph = model.graph
    lengths = declare("seqlens_k", ir.DataType.INT32, ("B",))
    total = declare("total_sequence_length", ir.DataType.INT32, ())
    bias, sliding = (
        declare(name, ir.DataType.FLOAT, ("B", 1, "N", "T"))
        for name in ("attention_bias", "sliding_bias")
    )
    found = list(cached_attentions(model))
    biased: dict[ir.Value, ir.Value] = {}
    for attention in found:
        added = sliding if attention.window else bias
        if attention.position_bias:
            if attention.position_bias not in biased:
                biased[attention.position_bias] = _with_positions(graph, attention, bias, total)
            added = biased[attention.position_bias]
        _replace(graph, attention, lengths, total, added)
    outputs = frozenset(str(value.name) for value in graph.outputs)
    biases = [value for value in (bias, sliding) if value.uses()]
    replace_interface(model, [*biases, lengths, total], outputs)
    return len(found)


def _replace(
    graph: ir.Graph,
    attention: CachedAttention,
    lengths: ir.Value,
    total: ir.Value,
    bias: ir.Value,
) -> None:
    builder = GraphBuilder(initializers=dict(graph.initializers))  # to share constants
    rotary = _rotary(attention)
    query, key, value = (
        _rows(builder, heads, unrotated=rotary is not None)
        for heads in (attention.query, attention.key, attention.value)
    )
    packed = _packed(query, key, value)
    mixed, keys, values = builder.split(
        "GroupQueryAttention",
        f"{attention.node.name}/GroupQuery",
        *((packed, None, None) if packed else (query, key, value)),
        attention.key_cache,
        attention.value_cache,
        lengths,
        total,
        *(rotary.inputs[1:4] if rotary else (None, None, None)),
        bias,
        outputs=3,
        domain=CONTRIB_DOMAIN,
        num_heads=attention.heads,
        kv_num_heads=attention.kv_heads,
        do_rotary=1 if rotary else 0,
        scale=attention.scale,
        softcap=attention.softcap,
        local_window_size=attention.window + _TREE_ROWS if attention.window else -1,
    )
    builder.splice(graph, attention.node)
    for cache, updated in ((attention.key_cache, keys), (attention.value_cache, values)):
        _replace_output(graph, f"new_{cache.name}", updated)
    _merged_heads(attention).replace_all_uses_with(mixed)


def _with_positions(
    graph: ir.Graph, attention: CachedAttention, bias: ir.Value, total: ir.Value
) -> ir.Value:
    """[B, H, N, T]: the position bias of the slots so far, and what a row does not see."""
    slots, positions = graph.initializers["slots"], attention.position_bias
    builder = GraphBuilder(initializers=dict(graph.initializers))  # to share constants
    first, step = (builder.constant(f"number.{each}", np.array(each)) for each in (0, 1))
    end = builder.op("Cast", "/slots/total", total, to=ir.DataType.INT64)
    so_far = builder.op("Range", "/slots", first, end, step)
    builder.splice(graph, slots.consumers()[0])
    slots.replace_all_uses_with(so_far)
    builder = GraphBuilder()
    added = builder.op("Add", "/model/position_bias/added", positions, bias)
    builder.splice(graph, attention.node)
    return added


def _rotary(attention: CachedAttention) -> ir.Node | None:
    """The rotation of the heads, if there is one and the operator can do it."""
    node = attention.query.producer()
    if node is None or node.op_type != "RotaryEmbedding" or node.inputs[1] is None:
        return None
    return node if dimensions(node.inputs[1])[1] % _TABLE_STEP == 0 else None


def _rows(builder: GraphBuilder, heads: ir.Value, *, unrotated: bool) -> ir.Value:
    """[B, N, heads D] of heads [B, heads, N, D], as they were before their rotation or after."""
    node = heads.producer()
    if unrotated and node and node.op_type == "RotaryEmbedding" and node.inputs[0]:
        heads = node.inputs[0]
        node = heads.producer()
    if node and node.op_type == "Transpose" and node.inputs[0]:
        apart = node.inputs[0]
    else:
        apart = builder.op("Transpose", f"{heads.name}/apart", heads, perm=[0, 2, 1, 3])
    node = apart.producer()
    if node and node.op_type == "Reshape" and node.inputs[0]:
        return node.inputs[0]
    merged = builder.constant("shape.merged", np.array([0, 0, -1]))
    return builder.op("Reshape", f"{apart.name}/merged", apart, merged)


def _packed(*rows: ir.Value) -> ir.Value | None:
    """The rows from which q, k and v, and nothing else, are split in this order."""
    split = rows[0].producer()
    if split is None or split.op_type != "Split" or list(split.outputs) != list(rows):
        return None
    return split.inputs[0]


def _replace_output(graph: ir.Graph, name: str, updated: ir.Value) -> None:
    index = [value.name for value in graph.outputs].index(name)
    old = graph.outputs[index]
    updated.type, updated.shape = old.type, old.shape
    graph.outputs[index] = updated
    old.name, updated.name = f"{name}.replaced", name


def _merged_heads(attention: CachedAttention) -> ir.Value:
    """[B, N, H D] after the contract's transpose and reshape, which the operator does itself."""
    (transpose,) = attention.node.outputs[0].consumers()
    (reshape,) = transpose.outputs[0].consumers()
    return reshape.outputs[0]


GROUP_QUERY_ATTENTION = Pass(
    "group_query_attention",
    _rewrite,
    requires=frozenset({"Attention", "TensorScatter"}),
    ensures=frozenset({"GroupQueryAttention"}),
    removes=frozenset({"TensorScatter"}),
)
