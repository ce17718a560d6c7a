"""ONNX Runtime: rotary embedding, cache update and attention become one operator of our own.

`CachedAttention` (`plugins/.../cpu/cached_attention.h`) reads q, k and v from one fused projection,
[B, N, (H + 2 Hkv) D], or apart where norms stand between. It updates the caches in place when the
runtime binds one buffer as input and output. A row's bits depend on what it sees alone: not on the
other rows, nor on the slots between. Inputs of the graph replace those of the contract:

=====================  =============  =====  ======================================================
input                  shape          type   meaning
=====================  =============  =====  ======================================================
position_ids           [B, N]         int64  as in the contract
past_lens              [B]            int32  rows in the cache
ancestors              [N, N]         bool   the rows of the step that each row of a tree sees,
                                             itself included; [0, 0] for a chain
=====================  =============  =====  ======================================================

A window counts positions, in trees too. A position bias is computed once for all layers, for the
slots so far. What attends to a source stays `Attention`: there is nothing to cache.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from speccompile.compiler.graph import GraphBuilder, declare
from speccompile.compiler.lower.cached_attention import (
    CachedAttention,
    cached_attentions,
    position_ids,
    replace_interface,
)
from speccompile.compiler.lower.passes import Pass
from speccompile.plugins.cpu.library import DOMAIN

__all__ = ["FUSED_ATTENTION"]


def _rewrite(model: ir.Model) -> int:
    graph = model.graph
    past = declare("past_lens", ir.DataType.INT32, ("B",))
    ancestors = declare("ancestors", ir.DataType.BOOL, ("T", "T"))
    positions = position_ids(graph)
    found = list(cached_attentions(model))
    for attention in found:
        _replace(graph, attention, [past, positions, ancestors])
    if any(attention.position_bias for attention in found):
        _end_slots(graph, past)
    outputs = frozenset(str(value.name) for value in graph.outputs)
    replace_interface(model, [positions, past, ancestors], outputs)
    model.opset_imports[DOMAIN] = 1
    return len(found)


def _replace(graph: ir.Graph, attention: CachedAttention, control: Sequence[ir.Value]) -> None:
    builder = GraphBuilder(initializers=dict(graph.initializers))  # to share constants
    rotary = _rotary(attention)
    query, key, value = (
        _rows(builder, heads, unrotated=rotary is not None)
        for heads in (attention.query, attention.key, attention.value)
    )
    packed = _packed(query, key, value)
    mixed, keys, values = builder.split(
        "CachedAttention",
        f"{attention.node.name}/Cached",
        *((packed, None, None) if packed else (query, key, value)),
        attention.key_cache,
        attention.value_cache,
        *control,
        *(rotary.inputs[1:3] if rotary else (None, None)),
        attention.position_bias,
        outputs=3,
        domain=DOMAIN,
        heads=attention.heads,
        kv_heads=attention.kv_heads,
        scale=attention.scale,
        softcap=attention.softcap,
        window=attention.window or 0,
    )
    builder.splice(graph, attention.node)
    for cache, updated in ((attention.key_cache, keys), (attention.value_cache, values)):
        _replace_output(graph, f"new_{cache.name}", updated)
    _merged_heads(attention).replace_all_uses_with(mixed)


def _end_slots(graph: ir.Graph, past: ir.Value) -> None:
    """A position bias is of the slots so far, not of all that the cache has."""
    slots = graph.initializers["slots"]
    builder = GraphBuilder(initializers=dict(graph.initializers))  # to share constants
    first, step = (builder.constant(f"number.{each}", np.array(each)) for each in (0, 1))
    tokens = next(each for each in graph.inputs if each.name == "input_ids")
    shape = builder.op("Shape", "/slots/rows", tokens, start=1, end=2)
    rows = builder.op("Squeeze", "/slots/count", shape)
    longest = builder.op("ReduceMax", "/slots/past", past, keepdims=0)
    past_rows = builder.op("Cast", "/slots/longest", longest, to=ir.DataType.INT64)
    end = builder.op("Add", "/slots/end", past_rows, rows)
    so_far = builder.op("Range", "/slots", first, end, step)
    builder.splice(graph, slots.consumers()[0])
    slots.replace_all_uses_with(so_far)


def _rotary(attention: CachedAttention) -> ir.Node | None:
    """The rotation of the heads, if there is one."""
    node = attention.query.producer()
    return node if node is not None and node.op_type == "RotaryEmbedding" else None


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


FUSED_ATTENTION = Pass(
    "fused_attention",
    _rewrite,
    requires=frozenset({"Attention", "TensorScatter"}),
    ensures=frozenset({"CachedAttention"}),
    removes=frozenset({"TensorScatter"}),
)
