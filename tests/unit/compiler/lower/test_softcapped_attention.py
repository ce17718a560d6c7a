from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from speccompile.compiler.decoder import DecoderConfig, LayerKind
from speccompile.compiler.lower.passes import run_passes
from speccompile.compiler.lower.softcapped_attention import SOFTCAPPED_ATTENTION
from speccompile.compiler.reference import ContractEngine
from tests.unit.compiler.lower.graphs import (
    CAPACITY,
    CONFIG,
    STORAGES,
    TOKENS,
    contract,
    operators,
    write,
)


@pytest.mark.parametrize("rotated", [True, False])
@pytest.mark.parametrize("steps", [[20], [1, 1, 18], [9, 3, 8]], ids=str)
def test_values_stay_the_same_in_any_steps(tmp_path: Path, steps: list[int], rotated: bool) -> None:
    config = _config(rotated)
    write(tmp_path, STORAGES["fp32"], config)
    original, path = tmp_path / "contract.onnx", tmp_path / "model.onnx"
    ir.save(contract(tmp_path, config), original)
    expected = ContractEngine(original, threads=1).step(TOKENS)
    model = contract(tmp_path, config)
    assert run_passes(model, [SOFTCAPPED_ATTENTION]) == {"softcapped_attention": 2}
    assert not operators(model).keys() & {"Attention", "TensorScatter"}
    ir.save(model, path)
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_inputs() if "cache" in value.name]
    caches = {name: np.zeros((1, 2, 0, 16), np.float32) for name in names}
    rows, start = [], 0
    for size in steps:
        ids = np.array([TOKENS[start : start + size]])
        positions = start + np.arange(size)[None]
        outputs = ["logits", *(f"new_{name}" for name in names)]
        feeds = {"input_ids": ids, "position_ids": positions, **caches}
        logits, *new = session.run(outputs, feeds)
        caches = {
            name: np.concatenate([caches[name], np.asarray(added)], axis=2)
            for name, added in zip(names, new, strict=True)
        }
        rows.append(np.asarray(logits)[0])
        start += size
    error = np.abs(np.concatenate(rows) - expected).max() / np.abs(expected).max()
    assert error <= 1e-5


def test_other_layers_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["fp32"])
    model = contract(tmp_path)
    before = operators(model)
    assert run_passes(model, [SOFTCAPPED_ATTENTION]) == {"softcapped_attention": 0}
    assert operators(model) == before


def _config(rotated: bool) -> DecoderConfig:
    rope = CONFIG.kinds[0].rope if rotated else None
    kinds = LayerKind(rope, window=6), LayerKind(rope)
    assert CAPACITY > 6
    return replace(CONFIG, kinds=kinds, layer_kinds=(0, 1), attention_softcap=2.0)
