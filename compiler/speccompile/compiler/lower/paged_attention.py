"""OpenVINO: cache update and attention become one node that the runtime maps to paged attention.

OpenVINO converts opset-24 `Attention`, but not `TensorScatter`, and its in-place form is the paged
operator, which has no ONNX counterpart. The node ``speccompile::PagedAttention`` stands for it. Its
inputs are query, key and value [B, heads, N, D], the two caches as pages [P, Hkv, page, D], and the
graph's own, which replace masks and slots:

====================  ==========  =====  ==========================================================
input                 shape       type   meaning
====================  ==========  =====  ==========================================================
past_lens             [B]         int32  rows in the cache
subsequence_begins    [B + 1]     int32  where the rows of each sequence begin, and their end
block_indices         [pages]     int32  the pages of each sequence
block_indices_begins  [B + 1]     int32  where they begin
max_context_len       []          int32  rows in the cache after the step, of the longest
qq_bias               [T]         uint8  1 where a row of a tree sees a row of the step, itself
                                         included: N x N numbers a sequence, or none: a chain
qq_bias_begins        [B + 1]     int32  where they begin, or empty: chains all
====================  ==========  =====  ==========================================================

Its output is [B, H, N, D], its attributes are `heads`, `kv_heads`, `head_dim`, `scale` and `window`
(0: none). The operator's window counts slots, which in a tree are not positions: a graph with such
layers takes chains only. It has no softcap: such layers are for `softcapped_attention.py`, which
comes first.
"""

from __future__ import annotations

import onnx_ir as ir

from speccompile.compiler.graph import PROJECT_DOMAIN, GraphBuilder, declare
from speccompile.compiler.lower.cached_attention import cached_attentions, replace_interface
from speccompile.compiler.lower.passes import LoweringError, Pass

__all__ = ["PAGED_ATTENTION"]

_PAGE_ROWS = 32  # the page size of OpenVINO's CPU plugin


def _rewrite(model: ir.Model) -> int:
    control = [
        declare("past_lens", ir.DataType.INT32, ("B",)),
        declare("subsequence_begins", ir.DataType.INT32, ("B+1",)),
        declare("block_indices", ir.DataType.INT32, ("pages",)),
        declare("block_indices_begins", ir.DataType.INT32, ("B+1",)),
        declare("max_context_len", ir.DataType.INT32, ()),
        declare("qq_bias", ir.DataType.UINT8, ("T",)),
        declare("qq_bias_begins", ir.DataType.INT32, ("trees",)),
    ]
    found = [attention for attention in cached_attentions(model) if not attention.softcap]
    if any(attention.position_bias for attention in found):
        raise LoweringError(
            "OpenVINO's paged attention adds no position bias to its scores; "
            'build with engine.cpu = ["onnxruntime"]'
        )
    for attention in found:
        builder = GraphBuilder()
        heads = attention.node.outputs[0]
        mixed = builder.op(
            "PagedAttention",
            f"{attention.node.name}/Paged",
            attention.query,
            attention.key,
            attention.value,
            attention.key_cache,
            attention.value_cache,
            *control,
            domain=PROJECT_DOMAIN,
            heads=attention.heads,
            kv_heads=attention.kv_heads,
            head_dim=attention.head_dim,
            scale=attention.scale,
            window=attention.window or 0,
        )
        builder.splice(model.graph, attention.node)
        heads.replace_all_uses_with(mixed)
        for cache in (attention.key_cache, attention.value_cache):
            cache.shape = ir.Shape(("P", attention.kv_heads, _PAGE_ROWS, attention.head_dim))
    caches = {each.key_cache.name for each in found} | {each.value_cache.name for each in found}
    outputs = {value.name for value in model.graph.outputs} - {f"new_{name}" for name in caches}
    replace_interface(model, control if found else [], outputs)
    return len(found)


PAGED_ATTENTION = Pass(
    "paged_attention",
    _rewrite,
    removes=frozenset({"Attention", "TensorScatter"}),
)
