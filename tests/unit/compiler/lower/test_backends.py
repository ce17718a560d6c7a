from __future__ import annotations

import pytest

from speccompile.compiler.lower.backends import Library, lowering, plan_lowering

OPENVINO = ["fuse_projections", "softcapped_attention", "paged_attention", "last_rows"]
ONNXRUNTIME = ["fuse_projections", "fused_attention", "last_rows", "panels"]


@pytest.mark.parametrize(
    ("backend", "names"), [("openvino", OPENVINO), ("onnxruntime", ONNXRUNTIME)]
)
def test_each_backend_has_its_list(backend: str, names: list[str]) -> None:
    assert [entry.name for entry in lowering(backend)] == names


@pytest.mark.parametrize(
    ("library", "rounding"), [("tensorrt", []), ("tensorrt_rtx", ["unrounded_inputs"])]
)
def test_a_plan_has_its_list(library: Library, rounding: list[str]) -> None:
    assert [entry.name for entry in plan_lowering(library, "walk", 64)] == [
        "capacity_64",
        *rounding,
        "fuse_projections",
        "int8_tables",
        "decomposed_attention",
        "grouped_heads",
        "half_precision",
        "tree_mask",
        "verify_walk",
        "allow_decomposition",
    ]
