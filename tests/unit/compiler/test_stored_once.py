from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import onnx_ir as ir
import pytest

from speccompile.compiler.stored_once import write_beside
from speccompile.runtime.engines.opening import open_engine
from tests.families import CONTEXT, tiny
from tests.lowered import sharing_engine, tiny_engine


@pytest.mark.parametrize("backend", ["openvino", "onnxruntime"])
def test_what_is_there_is_not_stored_again_and_computes_the_same(
    tmp_path: Path, tokens: list[int], backend: Literal["openvino", "onnxruntime"]
) -> None:
    model = tiny("llama-tied", num_hidden_layers=4)
    (tmp_path / "draft").mkdir()
    _, first = tiny_engine(model, backend, tmp_path, capacity=CONTEXT)
    before = first.with_name("model.onnx.data").read_bytes()
    layers = (1, 2)
    info, graph = sharing_engine(model, layers, backend, tmp_path / "draft", capacity=CONTEXT)
    expected = open_engine(info, graph, threads=1).step(tokens[:9])
    write_beside(graph, first, "beside.onnx")
    found = open_engine(info, tmp_path / "beside.onnx", threads=1).step(tokens[:9])
    np.testing.assert_array_equal(found, expected)
    assert first.with_name("model.onnx.data").read_bytes() == before
    own = (tmp_path / "beside.onnx.data").stat().st_size
    assert own < 0.01 * graph.with_name("model.onnx.data").stat().st_size


def test_other_bytes_are_its_own(tmp_path: Path) -> None:
    model = tiny("llama-tied", num_hidden_layers=4)
    (tmp_path / "draft").mkdir()
    _, first = tiny_engine(model, "openvino", tmp_path, capacity=CONTEXT, precision="fp16")
    _, graph = sharing_engine(model, (1, 2), "openvino", tmp_path / "draft", capacity=CONTEXT)
    write_beside(graph, first, "beside.onnx")
    alone, beside = ir.load(graph).graph, ir.load(tmp_path / "beside.onnx").graph
    for name, value in alone.initializers.items():
        there, here = value.const_value, beside.initializers[name].const_value
        assert there is not None
        assert here is not None
        np.testing.assert_array_equal(here.numpy(), there.numpy())
    matrix = beside.initializers["model.embed_tokens.weight"].const_value
    assert isinstance(matrix, ir.ExternalTensor)
    assert matrix.location == "beside.onnx.data"
