"""TensorRT: the query heads that share a key head become rows of one head.

Without this, TensorRT-RTX repeats keys and values for every query head before its attention kernel:
a copy, H / Hkv times the caches, in every layer of every step. The numbers are the same.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from speccompile.compiler.graph import GraphBuilder
from speccompile.compiler.lower.cached_attention import CachedAttention, cached_attentions
from speccompile.compiler.lower.passes import Pass

__all__ = ["GROUPED_HEADS"]


def _rewrite(model: ir.Model) -> int:
    found = [each for each in cached_attentions(model) if each.heads > each.kv_heads]
    masks: dict[tuple[ir.Value, int], ir.Value] = {}
    for attention in found:
        _group(model.graph, attention, masks)
    return len(found)


def _group(
    graph: ir.Graph, attention: CachedAttention, masks: dict[tuple[ir.Value, int], ir.Value]
) -> None:
    """Query [B, H, N, D] to [B, Hkv, (H / Hkv) N, D], and back; the mask is the same for each."""
    builder = GraphBuilder(initializers=dict(graph.initializers))  # to share constants
    node, output = attention.node, attention.node.outputs[0]
    path, mask = str(node.name), node.inputs[3]
    shared, apart = (
        builder.constant(f"shape.scores.{count}", np.array([0, count, -1, 0]))
        for count in (attention.kv_heads, attention.heads)
    )
    query = builder.op("Reshape", f"{path}/shared", attention.query, shared)
    if mask is not None:
        key = mask, attention.heads // attention.kv_heads
        if key not in masks:
            name = f"/{mask.name}/repeated.{key[1]}"
            masks[key] = builder.op("Concat", name, *[mask] * key[1], axis=2)
        node.replace_input_with(3, masks[key])
    node.replace_input_with(0, query)
    builder.splice(graph, node)
    behind = GraphBuilder()
    heads = behind.op("Reshape", f"{path}/heads", output, apart)
    output.replace_all_uses_with(heads)
    behind.nodes[0].replace_input_with(0, output)
    graph.insert_after(node, behind.nodes)


GROUPED_HEADS = Pass("grouped_heads", _rewrite)
