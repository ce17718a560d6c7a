"""The lowering of each engine: the list of passes from the contract to the graph that it runs."""

from __future__ import annotations

from collections.abc import Sequence

from speccompile.compiler.lower.fuse_projections import FUSE_PROJECTIONS
from speccompile.compiler.lower.group_query_attention import GROUP_QUERY_ATTENTION
from speccompile.compiler.lower.last_rows import LAST_ROWS
from speccompile.compiler.lower.matmul_nbits import MATMUL_NBITS
from speccompile.compiler.lower.paged_attention import PAGED_ATTENTION
from speccompile.compiler.lower.passes import Pass
from speccompile.compiler.lower.softcapped_attention import SOFTCAPPED_ATTENTION
from speccompile.compiler.lower.turn_weights import TURN_WEIGHTS

__all__ = ["lowering"]


def lowering(backend: str, precision: str) -> Sequence[Pass]:
    """The passes for `backend` ("openvino" or "onnxruntime") and weights of `precision`."""
    if backend == "openvino":
        return [FUSE_PROJECTIONS, SOFTCAPPED_ATTENTION, PAGED_ATTENTION, LAST_ROWS]
    passes = [FUSE_PROJECTIONS, GROUP_QUERY_ATTENTION, LAST_ROWS, TURN_WEIGHTS]
    return [*passes, MATMUL_NBITS] if precision in ("int8", "mixed") else passes
