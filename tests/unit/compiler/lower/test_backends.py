from __future__ import annotations

import pytest

from speccompile.compiler.lower.backends import Library, lowering, plan_lowering

OPENVINO = ["fuse_projections", "softcapped_attention", "paged_attention", "last_rows"]
ONNXRUNTIME = ["fuse_projections", "group_query_attention", "last_rows", "turn_weights"]


@pytest.mark.parametrize(
    ("backend", "precision", "names"),
    [
        ("openvino", "fp32", OPENVINO),
        ("openvino", "int8", OPENVINO),
        ("onnxruntime", "fp16", ONNXRUNTIME),
        ("onnxruntime", "int8", [*ONNXRUNTIME, "matmul_nbits"]),
        ("onnxruntime", "mixed", [*ONNXRUNTIME, "matmul_nbits"]),
    ],
)
def test_each_backend_has_its_list(backend: str, precision: str, names: list[str]) -> None:
    assert [entry.name for entry in lowering(backend, precision)] == names


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
