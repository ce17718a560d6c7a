from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

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
    cached = _Cached(path)
    rows = [
        cached.step(TOKENS[end - size : end], np.tri(size, dtype=np.bool_))
        for size, end in zip(steps, accumulate(steps), strict=True)
    ]
    error = np.abs(np.concatenate(rows) - expected).max() / np.abs(expected).max()
    assert error <= 1e-5


@pytest.mark.parametrize("rotated", [True, False])
def test_a_window_counts_positions_in_a_tree(tmp_path: Path, rotated: bool) -> None:
    """Two chains longer than it, side by side: the second says what it says without the first."""
    config = _config(rotated)
    write(tmp_path, STORAGES["fp32"], config)
    original, path = tmp_path / "contract.onnx", tmp_path / "model.onnx"
    ir.save(contract(tmp_path, config), original)
    expected = ContractEngine(original, threads=1).step(TOKENS[:12])[-8:]
    model = contract(tmp_path, config)
    run_passes(model, [SOFTCAPPED_ATTENTION])
    ir.save(model, path)
    cached = _Cached(path)
    cached.step(TOKENS[:4], np.tri(4, dtype=np.bool_))
    chain = np.tri(8, dtype=np.bool_)
    seen = np.block([[chain, np.zeros_like(chain)], [np.zeros_like(chain), chain]])
    rows = cached.step([*TOKENS[12:20], *TOKENS[4:12]], seen)[-8:]
    assert np.abs(rows - expected).max() / np.abs(expected).max() <= 1e-5


def test_other_layers_are_left_alone(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["fp32"])
    model = contract(tmp_path)
    before = operators(model)
    assert run_passes(model, [SOFTCAPPED_ATTENTION]) == {"softcapped_attention": 0}
    assert operators(model) == before


class _Cached:
    """A lowered graph in ONNX Runtime, with the rows so far."""

    def __init__(self, path: Path) -> None:
        self._session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
        names = [value.name for value in self._session.get_inputs() if "cache" in value.name]
        self._caches = {name: np.zeros((1, 2, 0, 16), np.float32) for name in names}
        self._length = 0

    def step(self, tokens: Sequence[int], seen: NDArray[np.bool_]) -> NDArray[np.float32]:
        """The logits of more rows, [N, V], of which each sees those that `seen` [N, N] says."""
        outputs = ["logits", *(f"new_{name}" for name in self._caches)]
        feeds = {
            "input_ids": np.array([tokens]),
            "position_ids": self._length + seen.sum(axis=1)[None] - 1,
            "ancestors": seen,
            **self._caches,
        }
        logits, *new = (np.asarray(value) for value in self._session.run(outputs, feeds))
        for name, added in zip(self._caches, new, strict=True):
            self._caches[name] = np.concatenate([self._caches[name], added], axis=2)
        self._length += len(tokens)
        return np.asarray(logits[0], np.float32)


def _config(rotated: bool) -> DecoderConfig:
    rope = CONFIG.kinds[0].rope if rotated else None
    kinds = LayerKind(rope, window=6), LayerKind(rope)
    assert CAPACITY > 6
    return replace(CONFIG, kinds=kinds, layer_kinds=(0, 1), attention_softcap=2.0)
