from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from speccompile.compiler.contract import KEEP_FP32_KEY
from speccompile.compiler.lower.fuse_projections import FUSE_PROJECTIONS
from speccompile.compiler.lower.passes import run_passes
from tests.unit.compiler.lower.graphs import (
    STORAGES,
    contract,
    logits,
    operators,
    stored_bytes,
    write,
)


@pytest.mark.parametrize("storage", STORAGES)
def test_values_stay_the_same(tmp_path: Path, storage: str) -> None:
    write(tmp_path, STORAGES[storage])
    model = contract(tmp_path)
    expected = logits(contract(tmp_path), tmp_path)
    assert run_passes(model, [FUSE_PROJECTIONS])["fuse_projections"] > 0
    fused = logits(model, tmp_path)
    # Sums run in another order: where activations are rounded, one may fall on the other side.
    tolerance = 2e-2 if STORAGES[storage].static else 1e-5
    assert np.abs(fused - expected).max() <= tolerance * np.abs(expected).max()


@pytest.mark.parametrize("storage", ["fp32", "fp16", "bf16", "int8", "static"])
def test_layers_become_one_with_their_biases(tmp_path: Path, storage: str) -> None:
    write(tmp_path, STORAGES[storage])
    model = contract(tmp_path)
    before, size = operators(model), stored_bytes(model)
    assert run_passes(model, [FUSE_PROJECTIONS]) == {"fuse_projections": 4}
    after = operators(model)
    # Of each of two layers: q, k and v, which have biases, and gate and up.
    assert before["MatMul"] - after["MatMul"] == 2 * 3
    assert before["Add"] - after["Add"] == 2 * 2
    assert before["QuantizeLinear"] - after["QuantizeLinear"] == (6 if storage == "static" else 0)
    assert after["Split"] == 4
    assert stored_bytes(model) == size


def test_layers_with_the_same_outliers_gather_them_once(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["outliers"])
    model = contract(tmp_path)
    before, size = operators(model), stored_bytes(model)
    # Gate and up of layer 1 do not have the same columns.
    assert run_passes(model, [FUSE_PROJECTIONS]) == {"fuse_projections": 3}
    after = operators(model)
    assert before["Gather"] - after["Gather"] == 2 * 2 + 1
    assert before["MatMul"] - after["MatMul"] == 2 * (2 * 2 + 1)
    assert stored_bytes(model) == size


def test_only_layers_stored_alike_are_fused(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["mixed"])
    model = contract(tmp_path)
    run_passes(model, [FUSE_PROJECTIONS])
    fused = [str(node.name) for node in model.graph if node.op_type == "Split"]
    # q is fp16 where k and v are int8, and up is where gate is not.
    assert fused == [f"/model/layers.{layer}/self_attn/k_proj+v_proj/Split" for layer in (0, 1)]


def test_no_weight_is_read_before_the_graph_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, STORAGES["int8"])
    model = contract(tmp_path)

    def refuse(tensor: ir.ExternalTensor) -> None:
        raise AssertionError(f"{tensor.name} is read")

    monkeypatch.setattr(ir.ExternalTensor, "numpy", refuse)
    run_passes(model, [FUSE_PROJECTIONS])


def test_what_fp16_cannot_hold_is_handed_over(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["fp16"])
    model = contract(tmp_path)
    peaks = {"q_proj": "70000", "k_proj": "100000", "v_proj/bias": "80000"}
    for node in model.graph:
        path = str(node.name).removeprefix("/model/layers.1/self_attn/")
        if path in peaks:
            node.metadata_props[KEEP_FP32_KEY] = peaks[path]
    run_passes(model, [FUSE_PROJECTIONS])
    marks = {node.name: node.metadata_props.get(KEEP_FP32_KEY) for node in model.graph}
    fused = "/model/layers.1/self_attn/q_proj+k_proj+v_proj"
    assert {name: mark for name, mark in marks.items() if mark} == {
        fused: "100000",
        f"{fused}/bias": "80000",
    }
