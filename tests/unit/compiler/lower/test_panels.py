from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.compiler.lower.fuse_projections import FUSE_PROJECTIONS
from speccompile.compiler.lower.linear import stored_array
from speccompile.compiler.lower.panels import PANELS
from speccompile.compiler.lower.passes import run_passes
from speccompile.plugins.cpu.library import WIDTH
from tests.unit.compiler.lower.graphs import (
    CONFIG,
    STORAGES,
    contract,
    logits,
    operators,
    stored_bytes,
    write,
)

EMBEDDING = "model.embed_tokens.weight"


@pytest.mark.parametrize("storage", STORAGES)
@pytest.mark.parametrize("fused", [False, True], ids=["apart", "fused"])
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
def test_logits_stay(tmp_path: Path, storage: str, fused: bool, tied: bool) -> None:
    config = replace(CONFIG, tied_embeddings=tied)
    write(tmp_path, STORAGES[storage], config)
    model = contract(tmp_path, config)
    run_passes(model, [FUSE_PROJECTIONS] if fused else [])
    expected = logits(model, tmp_path)
    assert run_passes(model, [PANELS])["panels"] > 0
    left = operators(model)
    assert (left["PanelMatMul"] > 0, left["PanelGather"]) == (True, tied)
    assert not left["MatMul"]
    found = logits(model, tmp_path)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_matrices_are_stored_in_panels_and_hardly_larger(tmp_path: Path) -> None:
    weights = write(tmp_path, STORAGES["fp16"])
    model = contract(tmp_path)
    before = stored_bytes(model)
    run_passes(model, [PANELS])
    sizes = [
        stored_array(value).nbytes
        for key, value in model.graph.initializers.items()
        if str(key).endswith(".panels")
    ]
    name = "model.layers.0.mlp.up_proj.weight"
    panels = stored_array(model.graph.initializers[f"{name}.panels"])
    assert panels.shape == (10, 64, WIDTH)
    np.testing.assert_array_equal(_unpacked(panels), weights.array(name))
    padding = 8 * 64 * 2  # 40 tokens are two panels and a half
    assert sum(sizes) + stored_bytes(model) == before + padding


def test_a_tied_embedding_is_stored_once(tmp_path: Path) -> None:
    weights = write(tmp_path, STORAGES["int8"])
    model = contract(tmp_path)
    run_passes(model, [PANELS])
    (panels,) = (
        stored_array(value)
        for name, value in model.graph.initializers.items()
        if str(name).startswith(EMBEDDING) and len(value.shape or ()) > 1
    )
    found = _unpacked(panels)
    np.testing.assert_array_equal(found[:40], weights.array(EMBEDDING))
    assert not found[40:].any()


def test_a_matrix_of_one_column_is_written_though_turning_it_moves_nothing(tmp_path: Path) -> None:
    config = replace(CONFIG, intermediate_size=1)
    write(tmp_path, STORAGES["fp16"], config)
    model = contract(tmp_path, config)
    expected = logits(model, tmp_path)
    run_passes(model, [PANELS])
    np.testing.assert_allclose(logits(model, tmp_path), expected, rtol=1e-4, atol=1e-5)


def _unpacked(panels: NDArray[np.generic]) -> NDArray[np.generic]:
    return panels.transpose(0, 2, 1).reshape(-1, panels.shape[1])
