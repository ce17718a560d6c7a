"""The lowering of each engine: the list of passes from the contract to the graph that it runs."""

from __future__ import annotations

from collections.abc import Sequence

from speccompile.compiler.lower.fuse_projections import FUSE_PROJECTIONS
from speccompile.compiler.lower.group_query_attention import GROUP_QUERY_ATTENTION
from speccompile.compiler.lower.matmul_nbits import MATMUL_NBITS
from speccompile.compiler.lower.paged_attention import PAGED_ATTENTION
from speccompile.compiler.lower.passes import Pass

__all__ = ["lowering"]


def lowering(backend: str, precision: str) -> Sequence[Pass]:
    """The passes for `backend` ("openvino" or "onnxruntime") and weights of `precision`."""
    if backend == "openvino":
        return [FUSE_PROJECTIONS, PAGED_ATTENTION]
    passes = [FUSE_PROJECTIONS, GROUP_QUERY_ATTENTION]
    return [*passes, MATMUL_NBITS] if precision == "int8" else passes
