"""TensorRT: positions and masks are made of a proposal tree, inside the graph.

A step says what its rows are by ``parents`` [B, N] and ``lengths`` [B]; the node `TreeMask` makes
of these what the contract takes as ``position_ids``, ``attention_mask`` and ``sliding_mask``. Rows
are written from slot ``lengths`` on, so this is the contract's ``write_index`` too.
"""

from __future__ import annotations

import onnx_ir as ir

from speccompile.compiler.contract import WINDOW_KEY
from speccompile.compiler.graph import GraphBuilder, declare
from speccompile.compiler.lower.cached_attention import extent, replace_interface
from speccompile.compiler.lower.passes import LoweringError, Pass
from speccompile.plugins.schema import DOMAIN, NAMESPACE, TREE_MASK, VERSION

__all__ = ["TREE_MASK_PASS"]


def _rewrite(model: ir.Model) -> int:
    graph = model.graph
    controls = {str(value.name): value for value in graph.inputs}
    write_index = controls.get("write_index")
    if write_index is None:
        raise LoweringError("the graph has no write_index, so no cache that rows are written to")
    capacity = extent(controls["key_cache.0"], 2)
    parents = declare("parents", ir.DataType.INT64, ("B", "N"))
    lengths = declare("lengths", ir.DataType.INT64, ("B",))
    builder = GraphBuilder()
    made = builder.split(
        TREE_MASK.name,
        "/model/tree_mask",
        parents,
        lengths,
        outputs=len(TREE_MASK.outputs),
        domain=DOMAIN,
        capacity=capacity,
        window=int(model.metadata_props.get(WINDOW_KEY, 0)),
        plugin_namespace=NAMESPACE,
        plugin_version=VERSION,
    )
    builder.splice(graph, graph[0])
    for value, argument in zip(made, TREE_MASK.outputs, strict=True):
        if old := controls.get(argument.name):
            old.replace_all_uses_with(value)
            value.type, value.shape = old.type, old.shape
        value.name = argument.name
    write_index.replace_all_uses_with(lengths)
    replace_interface(model, [parents, lengths], {str(value.name) for value in graph.outputs})
    return 1


TREE_MASK_PASS = Pass(
    "tree_mask",
    _rewrite,
    requires=frozenset({"TensorScatter"}),
    ensures=frozenset({TREE_MASK.name}),
)
