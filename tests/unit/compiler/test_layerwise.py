"""The streamed reference against transformers, and what it reports of activations."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from speccompile.compiler.layerwise import Layerwise
from tests.families import tiny

WINDOWS = np.random.default_rng(3).integers(3, 512, (3, 40))


@pytest.mark.parametrize("name", ["llama-tied", "qwen2-sliding", "gemma2", "gpt2"])
def test_logits_equal_transformers(name: str) -> None:
    model = tiny(name)
    decoder = Layerwise(model.config, model.read, threads=1)
    logits = np.stack(list(decoder.logits(decoder.hidden_states(WINDOWS))))
    expected = np.stack([model.logits(window) for window in WINDOWS.tolist()])
    assert np.abs(logits - expected).max() <= 1e-5 * np.abs(expected).max()


def test_windows_do_not_see_each_other() -> None:
    model = tiny("llama")
    decoder = Layerwise(model.config, model.read, threads=1)
    together = decoder.hidden_states(WINDOWS)
    alone = decoder.hidden_states(WINDOWS[1:2])
    np.testing.assert_allclose(together[1:2], alone, rtol=1e-4, atol=1e-5)


def test_peaks_are_those_of_the_rows_that_linear_layers_read() -> None:
    model = tiny("llama")
    seen: dict[str, NDArray[np.float32]] = {}

    def observe(name: str, peak: NDArray[np.float32]) -> None:
        seen[name] = np.maximum(seen.get(name, np.zeros_like(peak)), peak)

    Layerwise(model.config, model.read, threads=1).hidden_states(WINDOWS, observe)
    expected: dict[str, NDArray[np.float32]] = {}

    def keep(name: str, rows: torch.Tensor) -> None:
        peak = rows.abs().amax(dim=(0, 1)).numpy()
        expected[name] = np.maximum(expected.get(name, np.zeros_like(peak)), peak)

    for name, module in model.model.named_modules():
        if isinstance(module, torch.nn.Linear):
            module.register_forward_hook(
                lambda _, inputs, __, name=name: keep(name, inputs[0].detach())
            )
    for window in WINDOWS.tolist():
        model.logits(window)
    linears = {name for name in seen if not name.startswith("/")}
    assert linears == expected.keys()
    for name in linears:
        np.testing.assert_allclose(seen[name], expected[name], rtol=1e-4)
    # A node's peak is that of all its output.
    assert seen["/model/layers.0/mlp/Mul"].shape == ()
    assert seen["/model/layers.0/mlp/Mul"] == pytest.approx(
        seen["model.layers.0.mlp.down_proj"].max(), rel=1e-5
    )
