"""TensorRT: attention that its operator refuses, as matrix products over the same static caches.

Refused are a softcap, by the parser, and a head whose channels are no multiple of 8, by the
builder. Scores are scaled before the product, so that they stay within fp16.

All other attention is marked as decomposable: TensorRT uses a fused kernel where it has one, and
instead of failing does without where it has none, such as in fp32.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from speccompile.compiler.graph import GraphBuilder
from speccompile.compiler.lower.cached_attention import CachedAttention, cached_attentions
from speccompile.compiler.lower.passes import Pass

__all__ = ["ALLOW_DECOMPOSITION", "DECOMPOSED_ATTENTION"]

_CHANNEL_STEP = 8


def _decompose(model: ir.Model) -> int:
    found = [each for each in cached_attentions(model) if each.softcap or not _is_fused(each)]
    for attention in found:
        builder = GraphBuilder(initializers=dict(model.graph.initializers))  # to share constants
        mixed = _attend(builder, attention)
        builder.splice(model.graph, attention.node)
        attention.node.outputs[0].replace_all_uses_with(mixed)
    return len(found)


def _is_fused(attention: CachedAttention) -> bool:
    return attention.head_dim % _CHANNEL_STEP == 0


def _attend(builder: GraphBuilder, attention: CachedAttention) -> ir.Value:
    """[B, H, N, D]. The query heads of one key head are rows of one product."""
    path, cap = str(attention.node.name), attention.softcap
    keys, values, mask = attention.node.inputs[1:4]
    apart, shared = (
        builder.constant(f"shape.scores.{count}", np.array([0, count, -1, 0]))
        for count in (attention.heads, attention.kv_heads)
    )
    factor = _number(builder, "scale", attention.scale / (cap or 1.0))
    query = builder.op("Mul", f"{path}/scaled", attention.query, factor)
    query = builder.op("Reshape", f"{path}/shared", query, shared)
    turned = builder.op("Transpose", f"{path}/turned", keys, perm=[0, 1, 3, 2])
    scores = builder.op("MatMul", f"{path}/scores", query, turned)
    if cap:
        scores = builder.op("Tanh", f"{path}/Tanh", scores)
        scores = builder.op("Mul", f"{path}/capped", scores, _number(builder, "scale", cap))
    scores = builder.op("Reshape", f"{path}/apart", scores, apart)
    hidden = _number(builder, "score", -np.inf)
    scores = builder.op("Where", f"{path}/masked", mask, scores, hidden)
    weights = builder.op("Softmax", f"{path}/Softmax", scores, axis=-1)
    weights = builder.op("Reshape", f"{path}/weights", weights, shared)
    mixed = builder.op("MatMul", f"{path}/mixed", weights, values)
    return builder.op("Reshape", f"{path}/heads", mixed, apart)


def _number(builder: GraphBuilder, name: str, value: float) -> ir.Value:
    return builder.constant(f"{name}.{value!r}", np.array(value, np.float32))


def _allow(model: ir.Model) -> int:
    found = [node for node in model.graph if node.op_type == "Attention"]
    for node in found:
        node.attributes["TRT_decomposable"] = ir.AttrInt64("TRT_decomposable", 1)
    return len(found)


DECOMPOSED_ATTENTION = Pass("decomposed_attention", _decompose)

ALLOW_DECOMPOSITION = Pass("allow_decomposition", _allow)
"""The last of a plan's passes: the attribute is TensorRT's own, and other engines refuse it."""
