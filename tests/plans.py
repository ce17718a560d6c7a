"""Small ONNX graphs, and TensorRT plans of them, without a GPU."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from speccompile.compiler.tensorrt.builder import PlanReport, PlanSpec, Profile, build_plan
from speccompile.compiler.tensorrt.library import open_library
from speccompile.plugins.launches import Launch

__all__ = [
    "ATTENTION",
    "HEAD",
    "NEEDS_RTX",
    "RANGES",
    "ROUND",
    "NoKernels",
    "build",
    "model",
]

NEEDS_RTX = pytest.mark.skipif(
    find_spec("tensorrt_rtx") is None,
    reason="builds plans: pip install 'speccompile[tensorrt-rtx]'",
)

RANGES = (Profile(batch=(1, 2, 4), rows=(1, 2, 8)),)

ATTENTION = """
<ir_version: 10, opset_import: ["" : 24, "speccompile" : 1]>
step (
    float16[B,4,N,64] query, float16[B,2,N,64] key, float16[B,2,N,64] value,
    bool[B,1,N,128] mask, int64[B] lengths,
    float16[B,2,128,64] key_cache, float16[B,2,128,64] value_cache
) => (
    float16[B,4,N,64] mixed,
    float16[B,2,128,64] new_key_cache, float16[B,2,128,64] new_value_cache
) {
    [keys] new_key_cache = TensorScatter <axis = -2> (key_cache, key, lengths)
    [values] new_value_cache = TensorScatter <axis = -2> (value_cache, value, lengths)
    [attend] mixed = Attention (query, new_key_cache, new_value_cache, mask)
}
"""
"""One attention layer over caches of 128 slots."""

ROUND = """
<ir_version: 10, opset_import: ["" : 24, "speccompile" : 1]>
round (
    float16[B,4,N,64] query, float16[B,2,N,64] key, float16[B,2,N,64] value,
    int64[B,N] tokens, int64[B,N] parents, int64[B] lengths, int64[B] given,
    int64[B,N,2] uniforms, float[B,4] sampling, float16[B,N,32] draft_logits,
    float16[B,2,128,64] key_cache, float16[B,2,128,64] value_cache
) => (
    float16[B,N,32] logits,
    int64[B,N] path, int64[B] count, int64[B] next_token, int64[B,N] emitted,
    float16[B,2,128,64] new_key_cache, float16[B,2,128,64] new_value_cache
) {
    [tree] position_ids, mask, sliding_mask = speccompile.TreeMask <
        capacity = 128, window = 0, plugin_namespace = "speccompile", plugin_version = "1"
    > (parents, lengths)
    [keys] new_key_cache = TensorScatter <axis = -2> (key_cache, key, lengths)
    [values] new_value_cache = TensorScatter <axis = -2> (value_cache, value, lengths)
    [attend] mixed = Attention (query, new_key_cache, new_value_cache, mask)
    [rows] turned = Transpose <perm = [0, 2, 1, 3]> (mixed)
    [hidden] hidden = Reshape (turned, hidden_shape)
    [head] logits = MatMul (hidden, head)
    [verify] path, count, next_token, emitted = speccompile.SpecVerify <
        rule = "traversal", plugin_namespace = "speccompile", plugin_version = "1"
    > (logits, tokens, parents, given, uniforms, sampling, draft_logits)
}
"""
"""A target's whole round; its weights are `HEAD`."""

HEAD: dict[str, NDArray[np.generic]] = {
    "hidden_shape": np.array([0, 0, 256]),
    "head": np.random.default_rng(0).normal(size=(256, 32)).astype(np.float16),
}


class NoKernels:
    """For plans that are built and do not run."""

    def load(self) -> None:
        raise AssertionError("a build without a GPU loads kernels")

    def launch(self, launch: Launch, stream: int) -> None:
        raise AssertionError(f"a build without a GPU launches {launch.kernel} on {stream}")


def model(text: str, **weights: NDArray[np.generic]) -> onnx.ModelProto:
    """The model that `text` says, with `weights` as initializers."""
    made = onnx.parser.parse_model(text)
    made.graph.initializer.extend(
        numpy_helper.from_array(array, name) for name, array in weights.items()
    )
    return made


def build(
    made: onnx.ModelProto,
    folder: Path,
    *,
    architecture: str = "sm89",
    profiles: tuple[Profile, ...] = RANGES,
    flags: tuple[str, ...] = (),
) -> PlanReport:
    """Write ``step.onnx`` and its plan, ``step.plan``, to `folder`, with TensorRT-RTX."""
    graph = folder / "step.onnx"
    onnx.save(made, graph)
    spec = PlanSpec(graph, architecture, profiles, flags)
    return build_plan(spec, open_library("tensorrt_rtx"), NoKernels(), folder / "step.plan")
