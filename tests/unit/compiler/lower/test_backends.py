from __future__ import annotations

import pytest

from speccompile.compiler.lower.backends import lowering

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
