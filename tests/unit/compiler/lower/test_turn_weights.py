from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from speccompile.compiler.lower.fuse_projections import FUSE_PROJECTIONS
from speccompile.compiler.lower.linear import stored_array
from speccompile.compiler.lower.passes import run_passes
from speccompile.compiler.lower.turn_weights import TURN_WEIGHTS
from tests.unit.compiler.lower.graphs import (
    CONFIG,
    STORAGES,
    contract,
    logits,
    operators,
    stored_bytes,
    write,
)


@pytest.mark.parametrize("storage", ["fp32", "fp16", "bf16", "mixed", "outliers"])
@pytest.mark.parametrize("fused", [False, True], ids=["apart", "fused"])
def test_logits_stay(tmp_path: Path, storage: str, fused: bool) -> None:
    write(tmp_path, STORAGES[storage])
    model = contract(tmp_path)
    run_passes(model, [FUSE_PROJECTIONS] if fused else [])
    expected = logits(model, tmp_path)
    assert run_passes(model, [TURN_WEIGHTS])["turn_weights"] > 0
    found = logits(model, tmp_path)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_matrices_are_stored_turned_and_no_larger(tmp_path: Path) -> None:
    weights = write(tmp_path, STORAGES["fp16"])
    model = contract(tmp_path)
    before = stored_bytes(model)
    run_passes(model, [TURN_WEIGHTS])
    name = "model.layers.0.mlp.up_proj.weight"
    turned = model.graph.initializers[f"{name}.turned"]
    np.testing.assert_array_equal(stored_array(turned), weights.array(name).T)
    sizes = [
        stored_array(value).nbytes
        for key, value in model.graph.initializers.items()
        if str(key).endswith(".turned")
    ]
    assert sum(sizes) + stored_bytes(model) == before


def test_a_tied_embedding_is_stored_once_and_as_it_was(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["fp16"])
    model = contract(tmp_path)
    run_passes(model, [TURN_WEIGHTS])
    names = [name for name in model.graph.initializers if "embed_tokens" in str(name)]
    assert names == ["model.embed_tokens.weight"]
    assert operators(model)["Transpose"] == 1 + 4 * 2  # the head's; those of attention


def test_a_head_of_its_own_is_turned_and_int8_is_left(tmp_path: Path) -> None:
    config = replace(CONFIG, tied_embeddings=False)
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    write(tmp_path / "a", STORAGES["bf16"], config)
    model = contract(tmp_path / "a", config)
    assert run_passes(model, [TURN_WEIGHTS]) == {"turn_weights": 2 * 7 + 1}
    write(tmp_path / "b", STORAGES["int8"], config)
    assert run_passes(contract(tmp_path / "b", config), [TURN_WEIGHTS]) == {"turn_weights": 0}


def test_a_matrix_of_one_column_is_written_though_turning_it_moves_nothing(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["fp16"], replace(CONFIG, intermediate_size=1))
    model = contract(tmp_path, replace(CONFIG, intermediate_size=1))
    expected = logits(model, tmp_path)
    run_passes(model, [TURN_WEIGHTS])
    np.testing.assert_allclose(logits(model, tmp_path), expected, rtol=1e-4, atol=1e-5)
