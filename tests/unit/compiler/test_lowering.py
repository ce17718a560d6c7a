"""Each pass alone: what it leaves in the graph, and that it changes no value."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx_ir.passes.common import RemoveUnusedNodesPass

from speccompile.compiler.contract import build_contract
from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from speccompile.compiler.lower.backends import lowering
from speccompile.compiler.lower.fuse_projections import FUSE_PROJECTIONS
from speccompile.compiler.lower.group_query_attention import GROUP_QUERY_ATTENTION
from speccompile.compiler.lower.linear import stored_array
from speccompile.compiler.lower.matmul_nbits import BLOCK_ROWS, MATMUL_NBITS
from speccompile.compiler.lower.paged_attention import PAGED_ATTENTION
from speccompile.compiler.lower.passes import LoweringError, run_passes
from speccompile.compiler.quantize import write_weights
from speccompile.compiler.reference import ContractEngine
from speccompile.compiler.weights import Weights

if TYPE_CHECKING:
    from tests.conftest import Contract

CACHES = ["key_cache.0", "value_cache.0", "key_cache.1", "value_cache.1"]

PRECISIONS = pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])


@PRECISIONS
def test_fused_projections_are_fewer_and_equal(
    contract_of: Callable[[str], Contract], tokens: list[int], tmp_path: Path, precision: str
) -> None:
    contract = contract_of(precision)
    model = contract.graph()
    before = _operators(model)
    assert run_passes(model, [FUSE_PROJECTIONS]) == {"fuse_projections": 4}
    after = _operators(model)
    assert (before["MatMul"], after["MatMul"], after["Split"]) == (15, 9, 4)
    # Two layers less three products each; the head and, in fp16 and int8, the embedding stay.
    for operator in {"fp32": ["Transpose"], "fp16": ["Cast"], "int8": ["DequantizeLinear"]}[
        precision
    ]:
        assert before[operator] - after[operator] == 6
    assert _linear_bytes(model) == _linear_bytes(contract.graph())
    # The interface is still the contract's, so that the contract's own engine runs it.
    path = tmp_path / "model.onnx"
    ir.save(model, path, external_data="model.onnx.data")
    logits = ContractEngine(path, threads=1).step(tokens)
    expected = ContractEngine(contract.path, threads=1).step(tokens)
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


@PRECISIONS
def test_paged_attention_replaces_caches_and_mask(
    contract_of: Callable[[str], Contract], precision: str
) -> None:
    model = contract_of(precision).graph()
    before = _operators(model)
    assert run_passes(model, [PAGED_ATTENTION]) == {"paged_attention": 2}
    assert before - _operators(model) == Counter({"Attention": 2, "TensorScatter": 4})
    assert _operators(model) - before == Counter({"PagedAttention": 2})
    assert [value.name for value in model.graph.inputs] == [
        "input_ids",
        "position_ids",
        "past_lens",
        "subsequence_begins",
        "block_indices",
        "block_indices_begins",
        "max_context_len",
        *CACHES,
    ]
    assert [value.name for value in model.graph.outputs] == ["logits"]


@PRECISIONS
def test_group_query_attention_takes_packed_rows(
    contract_of: Callable[[str], Contract], precision: str
) -> None:
    model = contract_of(precision).graph()
    counts = run_passes(model, [FUSE_PROJECTIONS, GROUP_QUERY_ATTENTION])
    assert counts == {"fuse_projections": 4, "group_query_attention": 2}
    operators = _operators(model)
    assert (operators["GroupQueryAttention"], operators["Split"]) == (2, 2)  # gate and up's
    assert not operators.keys() & {"Attention", "TensorScatter", "RotaryEmbedding", "Reshape"}
    node = next(node for node in model.graph if node.op_type == "GroupQueryAttention")
    attributes = {name: node.attributes.get_int(name) for name in ("num_heads", "kv_num_heads")}
    assert attributes == {"num_heads": 4, "kv_num_heads": 2}
    names = ["input_ids", "seqlens_k", "total_sequence_length", *CACHES]
    assert [value.name for value in model.graph.inputs] == names
    outputs = ["logits", *(f"new_{name}" for name in CACHES)]
    assert [value.name for value in model.graph.outputs] == outputs


def test_group_query_attention_needs_fused_projections(
    contract_of: Callable[[str], Contract],
) -> None:
    with pytest.raises(LoweringError, match=r"group_query_attention needs Split.*: none\)"):
        run_passes(contract_of("fp32").graph(), [GROUP_QUERY_ATTENTION])


# Widths with and without a whole number of blocks, one block and several.
@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("hidden", [64, BLOCK_ROWS, 192])
def test_packed_blocks_hold_the_same_weights(tmp_path: Path, hidden: int, tied: bool) -> None:
    weights = _int8_weights(tmp_path, hidden, tied)
    model = build_contract(_config(hidden, tied), weights, 32)
    assert run_passes(model, [MATMUL_NBITS]) == {"matmul_nbits": 8}
    nodes = {str(node.name): node for node in model.graph if node.op_type == "MatMulNBits"}
    expected = {f"{_node_of(name, tied)}/NBits": name for name in _linear_names(weights, tied)}
    assert nodes.keys() == expected.keys()
    for path, name in expected.items():
        np.testing.assert_array_equal(_unpacked(nodes[path]), weights.dense(name))
    embedding = "model.embed_tokens.weight"
    assert (embedding in model.graph.initializers) == (not tied)  # once, whichever the form


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
@pytest.mark.parametrize("hidden", [64, BLOCK_ROWS, 192])
def test_embedding_rows_survive_the_packing(tmp_path: Path, hidden: int, tied: bool) -> None:
    weights = _int8_weights(tmp_path, hidden, tied)
    model = build_contract(_config(hidden, tied), weights, 32)
    run_passes(model, [MATMUL_NBITS])
    assert _operators(model)["Slice"] == (tied and hidden % BLOCK_ROWS != 0)
    ids = np.array([[0, 39, 7]])
    rows = _embedding(model, ids, tmp_path / "embedding.onnx")
    np.testing.assert_array_equal(rows, weights.dense("model.embed_tokens.weight")[ids])


@pytest.mark.parametrize(
    ("backend", "precision", "names"),
    [
        ("openvino", "fp32", ["fuse_projections", "paged_attention"]),
        ("openvino", "int8", ["fuse_projections", "paged_attention"]),
        ("onnxruntime", "fp16", ["fuse_projections", "group_query_attention"]),
        ("onnxruntime", "int8", ["fuse_projections", "group_query_attention", "matmul_nbits"]),
    ],
)
def test_each_backend_has_its_list(backend: str, precision: str, names: list[str]) -> None:
    assert [entry.name for entry in lowering(backend, precision)] == names


def _operators(model: ir.Model) -> Counter[str]:
    return Counter(node.op_type for node in model.graph)


def _linear_bytes(model: ir.Model) -> int:
    """Bytes of all weights and scales, which fusing only moves."""
    values = model.graph.initializers.values()
    names = (".weight", ".scale")
    return sum(stored_array(value).nbytes for value in values if str(value.name).endswith(names))


def _config(hidden: int, tied: bool) -> DecoderConfig:
    config = DecoderConfig(40, 64, 160, 1, 4, 2, 16, 32, 10_000.0, 1e-5, tied)
    return replace(config, hidden_size=hidden)


def _int8_weights(folder: Path, hidden: int, tied: bool) -> Weights:
    random = np.random.default_rng(5)
    config = _config(hidden, tied)
    shapes = tensor_shapes(config)
    write_weights(
        config, lambda name: random.normal(size=shapes[name]).astype(np.float32), "int8", folder
    )
    return Weights(folder)


def _linear_names(weights: Weights, tied: bool) -> list[str]:
    matrices = [name for name in weights if weights[name].dtype == ir.DataType.INT8]
    return [name for name in matrices if tied or name != "model.embed_tokens.weight"]


def _node_of(weight: str, tied: bool) -> str:
    """The path of the MatMul with `weight`."""
    if weight == ("model.embed_tokens.weight" if tied else "lm_head.weight"):
        return "/lm_head/MatMul"
    parts = weight.removesuffix(".weight").split(".")
    return f"/model/layers.{parts[2]}/{parts[3]}/{parts[4]}"


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
