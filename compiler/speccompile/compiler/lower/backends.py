"""The lowering of each engine: the list of passes from the contract to the graph that it runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.lower.borrow_caches import borrow_caches
from speccompile.compiler.lower.capacity import capacity_of
from speccompile.compiler.lower.decomposed_attention import (
    ALLOW_DECOMPOSITION,
    DECOMPOSED_ATTENTION,
)
from speccompile.compiler.lower.fuse_projections import FUSE_PROJECTIONS
from speccompile.compiler.lower.fused_attention import FUSED_ATTENTION
from speccompile.compiler.lower.grouped_heads import GROUPED_HEADS
from speccompile.compiler.lower.half_precision import HALF_PRECISION
from speccompile.compiler.lower.insert_verify import insert_verify
from speccompile.compiler.lower.int8_for_tensorrt import INT8_TABLES, UNROUNDED_INPUTS
from speccompile.compiler.lower.last_rows import LAST_ROWS
from speccompile.compiler.lower.paged_attention import PAGED_ATTENTION
from speccompile.compiler.lower.panels import PANELS
from speccompile.compiler.lower.passes import Pass
from speccompile.compiler.lower.restrict_head import restrict_head
from speccompile.compiler.lower.softcapped_attention import SOFTCAPPED_ATTENTION
from speccompile.compiler.lower.tree_mask import TREE_MASK_PASS
from speccompile.plugins.schema import Rule

__all__ = ["Library", "encoder_lowering", "lowering", "plan_lowering"]

Library = Literal["tensorrt", "tensorrt_rtx"]


def lowering(
    backend: str,
    token_ids: NDArray[np.int32] | None = None,
    layers: Sequence[int] = (),
) -> Sequence[Pass]:
    """The passes for `backend`, "openvino" or "onnxruntime".

    With `token_ids`, the head computes no other tokens; a draft made of `layers` of its target has
    the caches of these.
    """
    head = [] if token_ids is None else [restrict_head(token_ids)]
    caches = [borrow_caches(layers)] if layers else []
    if backend == "openvino":
        attention = [SOFTCAPPED_ATTENTION, PAGED_ATTENTION]
        return [*head, FUSE_PROJECTIONS, *attention, LAST_ROWS, *caches]
    return [*head, FUSE_PROJECTIONS, FUSED_ATTENTION, LAST_ROWS, PANELS, *caches]


def encoder_lowering() -> Sequence[Pass]:
    """The passes for an encoder, which ONNX Runtime alone runs. It runs once, over many rows:
    projections that read the same are left apart."""
    return [PANELS]


def plan_lowering(
    library: Library, rule: Rule, capacity: int, layers: Sequence[int] = ()
) -> Sequence[Pass]:
    """The passes for a TensorRT plan with caches of `capacity` slots, judging by `rule`; `layers`
    as for `lowering`.

    Layers whose input is rounded to int8 stay so in `tensorrt`, which multiplies in int8;
    `tensorrt_rtx` documents int8 weights only, so there the rounding is left out.
    """
    rounding = [UNROUNDED_INPUTS] if library == "tensorrt_rtx" else []
    return [
        capacity_of(capacity),
        *rounding,
        FUSE_PROJECTIONS,
        INT8_TABLES,
        DECOMPOSED_ATTENTION,
        GROUPED_HEADS,
        HALF_PRECISION,
        TREE_MASK_PASS,
        insert_verify(rule),
        ALLOW_DECOMPOSITION,
        *([borrow_caches(layers)] if layers else []),
    ]
