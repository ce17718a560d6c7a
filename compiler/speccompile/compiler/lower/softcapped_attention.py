"""OpenVINO: attention with a softcap, which its paged operator lacks, as matrix products.

The caches of such a layer become what the rows so far are, [B, Hkv, L, D], and the graph returns
the new rows, [B, Hkv, N, D], as ``new_key_cache.i`` and ``new_value_cache.i``: the runtime appends
them. The input ``ancestors`` [N, N], bool, says which rows of the step each row sees, itself
included; of the rows so far it sees those in its window, which counts positions, in trees too.
Every step copies its context, which the paged operator does not: slower, but the same numbers.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from speccompile.compiler.graph import GraphBuilder, declare
from speccompile.compiler.lower.cached_attention import (
    CachedAttention,
    cached_attentions,
    extent,
    position_ids,
    replace_interface,
)
from speccompile.compiler.lower.passes import Pass

__all__ = ["SOFTCAPPED_ATTENTION"]


def _rewrite(model: ir.Model) -> int:
    graph = model.graph
    found = [attention for attention in cached_attentions(model) if attention.softcap]
    if not found:
        return 0
    ancestors = declare("ancestors", ir.DataType.BOOL, ("N", "N"))
    positions = position_ids(graph)
    masks: dict[int | None, ir.Value] = {}
    for attention in found:
        _replace(graph, attention, ancestors, positions, masks)
    added = [value for value in (positions, ancestors) if value.uses()]
    replace_interface(model, added, {str(value.name) for value in graph.outputs})
    return len(found)


def _replace(
    graph: ir.Graph,
    attention: CachedAttention,
    ancestors: ir.Value,
    positions: ir.Value,
    masks: dict[int | None, ir.Value],
) -> None:
    builder = GraphBuilder(initializers=dict(graph.initializers))  # to share constants
    path, window = str(attention.node.name), attention.window
    keys = builder.op("Concat", f"{path}/keys", attention.key_cache, attention.key, axis=2)
    values = builder.op("Concat", f"{path}/values", attention.value_cache, attention.value, axis=2)
    if None not in masks:
        masks[None] = _mask(builder, attention.key_cache, ancestors)
    if window and window not in masks:
        masks[window] = _within(builder, masks[None], attention.key_cache, positions, window)
    mixed = _attend(builder, attention, keys, values, masks[window])
    for cache, rows in (
        (attention.key_cache, attention.key),
        (attention.value_cache, attention.value),
    ):
        _return_rows(graph, builder, cache, rows)
    builder.splice(graph, attention.node)
    attention.node.outputs[0].replace_all_uses_with(mixed)


def _mask(builder: GraphBuilder, cache: ir.Value, ancestors: ir.Value) -> ir.Value:
    """0 where a row sees a slot and minus infinity elsewhere, [N, slots]: all rows so far are seen,
    and of the step's own `ancestors`."""
    before, after = (
        builder.constant(f"slots.pads.{count}", np.zeros(count, np.int64)) for count in (1, 2)
    )
    visible, hidden = _scores(builder)
    rows = builder.op("Where", "/mask/rows", ancestors, visible, hidden)
    past = builder.op("Shape", "/mask/past", cache, start=2, end=3)
    pads = builder.op("Concat", "/mask/pads", before, past, after, axis=0)
    return builder.op("Pad", "/mask", rows, pads, visible)


def _within(
    builder: GraphBuilder, mask: ir.Value, cache: ir.Value, positions: ir.Value, window: int
) -> ir.Value:
    """Of `mask`, what is within `window` positions of a row, [1, 1, N, slots]."""
    path = f"/mask.{window}"
    zero, one, batch, around, width = (
        builder.constant(f"slots.{name}", np.array(value))
        for name, value in (
            ("first", 0),
            ("step", 1),
            ("batch", [0]),
            ("around", [1, 3]),
            (f"window.{window}", window),
        )
    )
    past = builder.op("Shape", f"{path}/shape", cache, start=2, end=3)
    past = builder.op("Squeeze", f"{path}/past", past)
    slots = builder.op("Range", f"{path}/range", zero, past, one)
    added = builder.op("Squeeze", f"{path}/added", positions, batch)
    slots = builder.op("Concat", f"{path}/slots", slots, added, axis=0)  # the position in each
    rows = builder.op("Unsqueeze", f"{path}/rows", positions, around)
    before = builder.op("Sub", f"{path}/before", rows, width)
    recent = builder.op("Greater", f"{path}/recent", slots, before)
    return builder.op("Where", path, recent, mask, _scores(builder)[1])


def _scores(builder: GraphBuilder) -> tuple[ir.Value, ir.Value]:
    """What is added to the score of a slot that is seen, and of one that is not."""
    return (
        builder.constant("score.visible", np.array(0.0, np.float32)),
        builder.constant("score.hidden", np.array(-np.inf, np.float32)),
    )


def _attend(
    builder: GraphBuilder,
    attention: CachedAttention,
    keys: ir.Value,
    values: ir.Value,
    mask: ir.Value,
) -> ir.Value:
    """[B, H, N, D]. The query heads of one key head are rows of one product."""
    path, cap = attention.node.name, attention.softcap
    heads, kv_heads = attention.heads, attention.kv_heads
    apart, shared = (
        builder.constant(f"shape.scores.{count}", np.array([0, count, -1, 0]))
        for count in (heads, kv_heads)
    )
    factor, ceiling = (
        builder.constant(f"scale.{value!r}", np.array(value, np.float32))
        for value in (attention.scale / cap, cap)
    )
    query = builder.op("Reshape", f"{path}/shared", attention.query, shared)
    turned = builder.op("Transpose", f"{path}/turned", keys, perm=[0, 1, 3, 2])
    scores = builder.op("MatMul", f"{path}/scores", query, turned)
    scores = builder.op("Mul", f"{path}/scaled", scores, factor)
    scores = builder.op("Tanh", f"{path}/Tanh", scores)
    scores = builder.op("Mul", f"{path}/capped", scores, ceiling)
    scores = builder.op("Reshape", f"{path}/apart", scores, apart)
    scores = builder.op("Add", f"{path}/masked", scores, mask)
    weights = builder.op("Softmax", f"{path}/Softmax", scores, axis=-1)
    weights = builder.op("Reshape", f"{path}/weights", weights, shared)
    mixed = builder.op("MatMul", f"{path}/mixed", weights, values)
    return builder.op("Reshape", f"{path}/heads", mixed, apart)


def _return_rows(graph: ir.Graph, builder: GraphBuilder, cache: ir.Value, rows: ir.Value) -> None:
    """Let the graph take the cache up to here, and return what to append to it."""
    name, heads, width = f"new_{cache.name}", extent(cache, 1), extent(cache, 3)
    cache.shape = ir.Shape(("B", heads, "L", width))
    index = [value.name for value in graph.outputs].index(name)
    graph.outputs[index].name = f"{name}.replaced"
    returned = builder.op("Identity", name, rows)
    returned.type = ir.TensorType(ir.DataType.FLOAT)
    returned.shape = ir.Shape(("B", heads, "N", width))
    graph.outputs[index] = returned


SOFTCAPPED_ATTENTION = Pass("softcapped_attention", _rewrite)
