"""A graph of a smaller capacity than the contract's.

A step's attention reads whole caches, so that a plan with half the slots is the faster one as long
as a sequence fits it.
"""

from __future__ import annotations

import onnx_ir as ir

from speccompile.compiler.lower.cached_attention import extent
from speccompile.compiler.lower.passes import LoweringError, Pass

__all__ = ["capacity_of"]

_SLOT_AXES = {"key_cache": 2, "value_cache": 2, "attention_mask": 3, "sliding_mask": 3}


def capacity_of(slots: int) -> Pass:
    """The pass that brings caches and masks to `slots`, at most those of the contract.

    Tables of rotations keep their rows: those past the capacity are not read.
    """
    return Pass(f"capacity_{slots}", lambda model: _resize(model.graph, slots))


def _resize(graph: ir.Graph, slots: int) -> int:
    count = 0
    for value in (*graph.inputs, *graph.outputs):
        axis = _SLOT_AXES.get(str(value.name).removeprefix("new_").partition(".")[0])
        if axis is None or value.shape is None:
            continue
        if not 0 < slots <= extent(value, axis):
            raise LoweringError(
                f"{value.name} has {extent(value, axis)} slots, which cannot become {slots}; "
                "choose a capacity within that of the contract"
            )
        value.shape = ir.Shape([*value.shape[:axis], slots, *value.shape[axis + 1 :]])
        count += 1
    return count
