"""A draft made of a target's layers works in the target's caches: they get the target's numbers."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from speccompile.compiler.lower.passes import Pass

__all__ = ["borrow_caches"]

_CACHES = ("key_cache", "value_cache", "new_key_cache", "new_value_cache")


def borrow_caches(layers: Sequence[int]) -> Pass:
    """The pass after which the caches of layer i are called as those of layer ``layers[i]``."""
    return Pass("borrow_caches", lambda model: _rewrite(model.graph, layers))


def _rewrite(graph: ir.Graph, layers: Sequence[int]) -> int:
    renamed = {
        f"{cache}.{own}": f"{cache}.{layer}"
        for own, layer in enumerate(layers)
        for cache in _CACHES
    }
    values = [each for each in (*graph.inputs, *graph.outputs) if each.name in renamed]
    for value in values:
        value.name = renamed[str(value.name)]
    return len(values)
