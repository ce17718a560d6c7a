from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from speccompile.compiler.decoder import LayerKind
from speccompile.compiler.lower.decomposed_attention import (
    ALLOW_DECOMPOSITION,
    DECOMPOSED_ATTENTION,
)
from speccompile.compiler.lower.passes import run_passes
from speccompile.compiler.reference import ContractEngine
from speccompile.compiler.rope import plain_rope
from speccompile.plugins.tree import tree_mask
from tests.unit.compiler.lower.graphs import (
    CAPACITY,
    CONFIG,
    STORAGES,
    TOKENS,
    contract,
    operators,
    write,
)

PARENTS = np.array([-1, 0, 0, 1, 1, 2, 4, 5])
ROPE = CONFIG.kinds[0].rope
WINDOWED = replace(CONFIG, kinds=(LayerKind(ROPE, window=6), LayerKind(ROPE)), layer_kinds=(0, 1))
CONFIGS = {
    "softcap": replace(WINDOWED, attention_softcap=2.0),
    "odd head": replace(CONFIG, head_dim=12, kinds=(LayerKind(plain_rope(1e4, 12)),)),
    "both": replace(
        CONFIG, head_dim=12, kinds=(LayerKind(plain_rope(1e4, 12)),), attention_softcap=2.0
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_values_stay_the_same(tmp_path: Path, name: str) -> None:
    config = CONFIGS[name]
    write(tmp_path, STORAGES["fp32"], config)
    model = contract(tmp_path, config)
    expected = _rows(model, tmp_path / "contract.onnx")
    assert run_passes(model, [DECOMPOSED_ATTENTION]) == {"decomposed_attention": 2}
    left = operators(model)
    assert left["Attention"] == 0
    assert left["TensorScatter"] == 4
    assert left["Tanh"] == (2 if config.attention_softcap else 0)
    found = _rows(model, tmp_path / "model.onnx")
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_other_attention_is_left_alone_but_may_be_decomposed(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["fp32"])
    model = contract(tmp_path)
    before = operators(model)
    counts = run_passes(model, [DECOMPOSED_ATTENTION, ALLOW_DECOMPOSITION])
    assert counts == {"decomposed_attention": 0, "allow_decomposition": 2}
    assert operators(model) == before
    nodes = [node for node in model.graph if node.op_type == "Attention"]
    assert [node.attributes["TRT_decomposable"].as_int() for node in nodes] == [1, 1]


def _rows(model: ir.Model, path: Path) -> np.ndarray[tuple[int, int], np.dtype[np.float32]]:
    """Logits of a context, and of a tree behind it."""
    ir.save(model, path)
    engine = ContractEngine(path, threads=1)
    context = len(TOKENS) - len(PARENTS)
    before = engine.step(TOKENS[:context]).copy()
    positions, mask, _ = tree_mask(PARENTS[None], np.array([context]), CAPACITY, 0)
    return np.concatenate([before, engine.step_rows(TOKENS[context:], positions[0], mask[0, 0])])
