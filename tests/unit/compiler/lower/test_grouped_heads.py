from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from speccompile.compiler.decoder import LayerKind
from speccompile.compiler.lower.grouped_heads import GROUPED_HEADS
from speccompile.compiler.lower.passes import run_passes
from tests.unit.compiler.lower.graphs import CONFIG, STORAGES, contract, logits, operators, write

ONE, TWO = CONFIG.kinds[0], replace(CONFIG.kinds[0], window=6)


@pytest.mark.parametrize("kinds", [(ONE, ONE), (TWO, ONE)], ids=["full", "sliding"])
@pytest.mark.parametrize("kv_heads", [1, 2])
def test_values_stay_the_same(tmp_path: Path, kv_heads: int, kinds: tuple[LayerKind, ...]) -> None:
    config = replace(CONFIG, kinds=kinds, layer_kinds=(0, 1), kv_heads=kv_heads)
    write(tmp_path, STORAGES["fp32"], config)
    expected = logits(contract(tmp_path, config), tmp_path)
    model = contract(tmp_path, config)
    names = {node.name for node in model.graph}
    assert run_passes(model, [GROUPED_HEADS]) == {"grouped_heads": 2}
    assert names <= {node.name for node in model.graph}
    # One mask for all layers that have the same.
    assert operators(model)["Concat"] == len({str(kind) for kind in kinds})
    found = logits(model, tmp_path)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_a_head_with_its_own_keys_is_left_alone(tmp_path: Path) -> None:
    config = replace(CONFIG, kv_heads=CONFIG.heads)
    write(tmp_path, STORAGES["fp32"], config)
    model = contract(tmp_path, config)
    before = operators(model)
    assert run_passes(model, [GROUPED_HEADS]) == {"grouped_heads": 0}
    assert operators(model) == before
