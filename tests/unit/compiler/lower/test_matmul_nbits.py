from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx_ir.passes.common import RemoveUnusedNodesPass

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.lower.fuse_projections import FUSE_PROJECTIONS
from speccompile.compiler.lower.linear import stored_array
from speccompile.compiler.lower.matmul_nbits import BLOCK_ROWS, MATMUL_NBITS
from speccompile.compiler.lower.passes import run_passes
from speccompile.compiler.weights import Weights
from tests.unit.compiler.lower.graphs import (
    CONFIG,
    STORAGES,
    contract,
    logits,
    node_of,
    operators,
    write,
)

TIED = pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
WIDTHS = pytest.mark.parametrize("hidden", [64, BLOCK_ROWS, 192])
"""With and without a whole number of blocks, one block and several."""

EMBEDDING = "model.embed_tokens.weight"


@TIED
@WIDTHS
def test_packed_blocks_hold_the_same_weights(tmp_path: Path, hidden: int, tied: bool) -> None:
    config = _config(hidden, tied)
    weights = write(tmp_path, STORAGES["int8"], config)
    model = contract(tmp_path, config)
    assert run_passes(model, [MATMUL_NBITS]) == {"matmul_nbits": 8}
    nodes = {str(node.name): node for node in model.graph if node.op_type == "MatMulNBits"}
    expected = {f"{node_of(name, config)}/NBits": name for name in _linears(weights, tied)}
    assert nodes.keys() == expected.keys()
    for path, name in expected.items():
        np.testing.assert_array_equal(_unpacked(nodes[path]), weights.dense(name))
    assert (EMBEDDING in model.graph.initializers) == (not tied)  # once, whichever the form


@TIED
@WIDTHS
def test_embedding_rows_survive_the_packing(tmp_path: Path, hidden: int, tied: bool) -> None:
    config = _config(hidden, tied)
    weights = write(tmp_path, STORAGES["int8"], config)
    model = contract(tmp_path, config)
    run_passes(model, [MATMUL_NBITS])
    assert operators(model)["Slice"] == (tied and hidden % BLOCK_ROWS != 0)
    ids = np.array([[0, 39, 7]])
    rows = _embedding(model, ids, tmp_path / "embedding.onnx")
    np.testing.assert_array_equal(rows, weights.dense(EMBEDDING)[ids])


@pytest.mark.parametrize("storage", ["int8", "mixed", "outliers"])
def test_values_are_close(tmp_path: Path, storage: str) -> None:
    """Not equal: the operator rounds activations to int8."""
    write(tmp_path, STORAGES[storage])
    model = contract(tmp_path)
    expected = logits(contract(tmp_path), tmp_path)
    run_passes(model, [FUSE_PROJECTIONS, MATMUL_NBITS])
    found = logits(model, tmp_path)
    error = np.abs(found - expected).max() / np.abs(expected).max()
    assert 1e-5 < error <= 0.1


def test_only_int8_weights_are_packed(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["mixed"])
    model = contract(tmp_path)
    before = operators(model)
    # Of seven layers in two, two are fp16 each; the head is int8.
    assert run_passes(model, [MATMUL_NBITS]) == {"matmul_nbits": 2 * 5 + 1}
    after = operators(model)
    assert (after["MatMul"], after["DequantizeLinear"]) == (4, 0)
    assert before["MatMul"] == after["MatMul"] + after["MatMulNBits"]


def test_outliers_stay_apart(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["outliers"])
    model = contract(tmp_path)
    run_passes(model, [MATMUL_NBITS])
    after = operators(model)
    assert (after["MatMulNBits"], after["MatMul"]) == (15, 14)  # a tied head has none


@pytest.mark.parametrize("storage", ["static", "static-outliers"])
def test_a_layer_with_rounded_input_is_left_alone(tmp_path: Path, storage: str) -> None:
    write(tmp_path, STORAGES[storage])
    model = contract(tmp_path)
    before = operators(model)
    assert run_passes(model, [MATMUL_NBITS]) == {"matmul_nbits": 0}
    assert operators(model) == before


def _config(hidden: int, tied: bool) -> DecoderConfig:
    return replace(CONFIG, hidden_size=hidden, tied_embeddings=tied, layer_kinds=(0,))


def _linears(weights: Weights, tied: bool) -> list[str]:
    matrices = [name for name in weights if weights[name].dtype == ir.DataType.INT8]
    return [name for name in matrices if tied or name != EMBEDDING]


def _unpacked(node: ir.Node) -> NDArray[np.float32]:
    """The matrix [out, in] of a MatMulNBits node, by the definition of the operator."""
    packed, scales = (value for value in node.inputs[1:3] if value is not None)
    blocks = stored_array(packed).astype(np.float32) - 128
    rows, count, _ = blocks.shape
    values = blocks * stored_array(scales).astype(np.float32).reshape(rows, count, 1)
    width = node.attributes.get_int("K")
    flat = values.reshape(rows, -1)
    assert not flat[:, width:].any()
    return flat[:, :width]


def _embedding(model: ir.Model, ids: NDArray[np.int64], path: Path) -> NDArray[np.float32]:
    """The rows that a graph looks up, computed by what is left when all else is cut off."""
    graph = model.graph
    (rows,) = (node.outputs[0] for node in graph if node.name == "/model/embed_tokens/Mul")
    rows.type = ir.TensorType(ir.DataType.FLOAT)
    graph.outputs[:] = [rows]
    RemoveUnusedNodesPass()(model)
    graph.inputs[:] = [value for value in graph.inputs if value.name == "input_ids"]
    ir.save(model, path)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"input_ids": ids})
    return np.asarray(found, np.float32)
