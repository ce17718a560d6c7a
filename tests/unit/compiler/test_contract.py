"""The contract under ONNX Runtime, through its oracle engine, against transformers."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from speccompile.compiler.contract import build_contract
from speccompile.compiler.quantize import write_weights
from speccompile.compiler.reference import ContractEngine
from speccompile.compiler.weights import Weights
from speccompile.runtime.errors import EngineError, RequestError
from tests.contract_run import relative_error
from tests.families import tiny

if TYPE_CHECKING:
    from tests.conftest import Contract
    from tests.families import Tiny

TOLERANCE = 1e-5  # relative; measured: 2e-6 in every precision


@pytest.mark.parametrize("rows", [1, 6, 17])
@pytest.mark.parametrize("context", [0, 1, 7, -1])
def test_logits_equal_transformers(
    contract_of: Callable[[str], Contract], tokens: list[int], context: int, rows: int
) -> None:
    contract = contract_of("fp32")
    engine = ContractEngine(contract.path, threads=1)
    if context == -1:  # up to the last slot
        context = engine.capacity - rows
    if context:
        engine.step(tokens[:context])
    logits = engine.step(tokens[context : context + rows])
    expected = contract.tiny.logits(tokens[: context + rows])[context:]
    assert logits.shape == expected.shape
    assert relative_error(logits, expected) <= TOLERANCE
    assert engine.length == context + rows


@pytest.mark.parametrize("precision", ["fp16", "int8"])
def test_stored_weights_are_computed_with_in_fp32(
    contract_of: Callable[[str], Contract], tokens: list[int], precision: str
) -> None:
    contract = contract_of(precision)
    engine = ContractEngine(contract.path, threads=1)
    logits = np.concatenate([engine.step(tokens[:7]), engine.step(tokens[7:])])
    expected = contract.dense().logits(tokens)
    assert relative_error(logits, expected) <= TOLERANCE
    # The rounding is there: the check above is not one of fp32 against itself.
    assert relative_error(logits, contract.tiny.logits(tokens)) > 10 * TOLERANCE


def test_rows_of_a_tree_equal_each_path_alone(
    contract_of: Callable[[str], Contract], tokens: list[int]
) -> None:
    contract, context, parents = contract_of("fp32"), 7, [-1, 0, 0, 1, 1, 2, 4, 5]
    paths: list[list[int]] = []
    for row, parent in enumerate(parents):
        paths.append([*(paths[parent] if row else []), row])
    engine = ContractEngine(contract.path, threads=1)
    engine.step(tokens[:context])
    mask = np.zeros((len(parents), engine.capacity), np.bool_)
    mask[:, :context] = True
    for row, path in enumerate(paths):
        mask[row, [context + ancestor for ancestor in path]] = True
    positions = np.array([context + len(path) - 1 for path in paths])
    logits = engine.step_rows(tokens[50 : 50 + len(parents)], positions, mask)
    for row, path in enumerate(paths):
        alone = contract.tiny.logits([*tokens[:context], *(tokens[50 + other] for other in path)])
        assert relative_error(logits[row], alone[-1]) <= TOLERANCE


def test_rolled_back_rows_leave_no_trace(
    contract_of: Callable[[str], Contract], tokens: list[int]
) -> None:
    engine = ContractEngine(contract_of("fp32").path, threads=1)
    engine.step(tokens[:7])
    expected = engine.step(tokens[7:9])
    engine.rollback(7)
    engine.step(tokens[60:80])
    engine.rollback(7)
    np.testing.assert_array_equal(engine.step(tokens[7:9]), expected)


@pytest.mark.parametrize("name", ["gemma3", "gpt2", "olmo2"])
def test_the_engine_runs_other_families(name: str, tokens: list[int], tmp_path: Path) -> None:
    """Gemma's windows have a mask of their own, which follows positions and outlives a rollback."""
    model = tiny(name)
    write_weights(model.config, model.read, "fp32", tmp_path)
    path = tmp_path / "model.onnx"
    ir.save(build_contract(model.config, Weights(tmp_path), len(tokens)), path)
    inputs = {value.name for value in onnx.load(path, load_external_data=False).graph.input}
    assert ("sliding_mask" in inputs) == (name == "gemma3")
    engine = ContractEngine(path, threads=1)
    engine.step(tokens[:50])
    engine.rollback(40)
    logits = np.concatenate([engine.step(tokens[40:41]), engine.step(tokens[41:60])])
    assert relative_error(logits, model.logits(tokens[:60])[40:]) <= TOLERANCE


def test_a_full_cache_refuses_rows_and_stays_usable(
    contract_of: Callable[[str], Contract], tokens: list[int]
) -> None:
    engine = ContractEngine(contract_of("fp32").path, threads=1)
    engine.step(tokens[:-1])
    with pytest.raises(RequestError, match=r"95 \+ 2 tokens pass the context of 96"):
        engine.step([1, 2])
    assert engine.step([1]).shape == (1, 512)


def test_a_broken_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(b"not a graph")
    with pytest.raises(EngineError, match=r"\A.*model\.onnx: not a contract.*\Z"):
        ContractEngine(path)


def test_a_failing_step_is_one_line(contract_of: Callable[[str], Contract]) -> None:
    engine = ContractEngine(contract_of("fp32").path, threads=1)
    with pytest.raises(EngineError, match=r"\Athe contract failed on 1 rows: .*\Z"):
        engine.step([512])
    assert engine.length == 0


def test_interface(contract_of: Callable[[str], Contract]) -> None:
    path = contract_of("fp32").path
    onnx.checker.check_model(path, full_check=True)
    graph = onnx.load(path, load_external_data=False).graph
    cache = "float32[B,2,96,16]"
    caches = {f"{kind}_cache.{layer}": cache for layer in range(2) for kind in ("key", "value")}
    assert {value.name: _signature(value) for value in graph.input} == {
        "input_ids": "int64[B,N]",
        "position_ids": "int64[B,N]",
        "attention_mask": "bool[B,1,N,96]",
        "write_index": "int64[B]",
        **caches,
    }
    assert {value.name: _signature(value) for value in graph.output} == {
        "logits": "float32[B,N,512]",
        **{f"new_{name}": cache for name in caches},
    }
    names = [node.name for node in graph.node]
    assert len(set(names)) == len(names)
    assert "/model/layers.1/self_attn/q_proj" in names


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_weights_stay_in_their_file_and_tied_ones_are_one(
    llama: Tiny, contract_of: Callable[[str], Contract], precision: str
) -> None:
    contract = contract_of(precision)
    proto = onnx.load(contract.path, load_external_data=False)
    external = [tensor for tensor in proto.graph.initializer if tensor.external_data]
    assert {tensor.name for tensor in external} == set(contract.weights)
    wide = [tensor for tensor in external if list(tensor.dims) == [512, 64]]
    assert len(wide) == (1 if llama.config.tied_embeddings else 2)
    assert contract.path.stat().st_size < 32_000  # the weights have 160,000 values or more


def test_a_moved_folder_still_runs(
    contract_of: Callable[[str], Contract], tokens: list[int], tmp_path: Path
) -> None:
    contract = contract_of("fp16")
    original = shutil.copytree(contract.folder, tmp_path / "original")
    moved = shutil.move(original, tmp_path / "moved")
    logits = ContractEngine(Path(moved) / "model.onnx", threads=1).step(tokens[:3])
    expected = ContractEngine(contract.path, threads=1).step(tokens[:3])
    np.testing.assert_array_equal(logits, expected)


def _signature(value: onnx.ValueInfoProto) -> str:
    tensor = value.type.tensor_type
    shape = [dim.dim_param or str(dim.dim_value) for dim in tensor.shape.dim]
    return f"{onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)}[{','.join(shape)}]"
