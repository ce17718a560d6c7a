from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from speccompile.compiler.calibration import Statistics
from speccompile.compiler.contract import build_contract
from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from speccompile.compiler.quantize import Int8Inputs, TensorReader, write_weights
from speccompile.compiler.reference import ContractEngine
from speccompile.compiler.smoothing import smoothed
from speccompile.compiler.weights import Weights
from speccompile.runtime.errors import SpeccompileError
from tests.families import CONTEXT, Tiny, tiny

LAYER = "model.layers.1"
GROUPS = {
    "input_layernorm": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
    "post_attention_layernorm": ["mlp.gate_proj", "mlp.up_proj"],
}
PLANTED = 60.0


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2"])  # gpt2: norms with biases
def test_logits_stay(family: str, tokens: list[int], tmp_path: Path) -> None:
    model = tiny(family)
    peaks = _random_peaks(model.config)
    read, _ = smoothed(model.config, model.read, peaks, 0.5)
    expected = _logits(model.config, model.read, "fp32", tokens, tmp_path)
    actual = _logits(model.config, read, "fp32", tokens, tmp_path)
    assert np.abs(actual - expected).max() <= 1e-5 * np.abs(expected).max()
    changed = {name for name in tensor_shapes(model.config) if _differ(model.read, read, name)}
    assert f"{LAYER}.self_attn.k_proj.weight" in changed
    assert f"{LAYER}.mlp.up_proj.weight" in changed
    assert len(changed) == {"llama": 14, "gemma2": 14, "gpt2": 16}[family]


def test_factors_are_those_of_the_paper() -> None:
    model = tiny("llama")
    peaks = dict(_random_peaks(model.config))
    for linear in [linear for linears in GROUPS.values() for linear in linears]:
        peaks[f"{LAYER}.{linear}"][3] = 0.0  # dead
        peaks[f"{LAYER}.{linear}"][4] = 1e30
    read, after = smoothed(model.config, model.read, peaks, 0.75)
    for norm, linears in GROUPS.items():
        names = [f"{LAYER}.{linear}" for linear in linears]
        columns = np.concatenate([model.read(f"{name}.weight") for name in names])
        factors = peaks[names[0]] ** 0.75 / np.abs(columns).max(axis=0) ** 0.25
        factors[3], factors[4] = 1.0, 1024.0
        weight = model.read(f"{LAYER}.{norm}.weight")
        np.testing.assert_allclose(read(f"{LAYER}.{norm}.weight"), weight / factors, rtol=1e-5)
        for name in names:
            scaled = model.read(f"{name}.weight") * factors
            np.testing.assert_allclose(read(f"{name}.weight"), scaled, rtol=1e-5)
            np.testing.assert_allclose(after[name], peaks[name] / factors, rtol=1e-5)
    down = f"{LAYER}.mlp.down_proj"
    np.testing.assert_array_equal(after[down], peaks[down])


def test_norms_that_feed_no_linear_layer_stay() -> None:
    model = tiny("olmo2")  # it has no norm before a sublayer
    read, after = smoothed(model.config, model.read, _random_peaks(model.config), 0.5)
    assert not any(_differ(model.read, read, name) for name in tensor_shapes(model.config))
    assert dict(after).keys() == _random_peaks(model.config).keys()


def test_a_layer_without_statistics_is_named() -> None:
    model = tiny("llama")
    peaks = dict(_random_peaks(model.config))
    del peaks[f"{LAYER}.mlp.up_proj"]
    with pytest.raises(SpeccompileError, match=rf"\A{LAYER}.mlp.up_proj: has no calibration"):
        smoothed(model.config, model.read, peaks, 0.5)


def test_int8_rows_and_weights_are_closer_where_outliers_were(
    tokens: list[int], tmp_path: Path
) -> None:
    plain, planted = tiny("llama"), tiny("llama")
    _plant_outliers(planted)
    expected = plain.logits(tokens)
    np.testing.assert_allclose(planted.logits(tokens), expected, rtol=0, atol=1e-4)

    def error(model: Tiny, read: TensorReader, peaks: Statistics) -> float:
        inputs = Int8Inputs(peaks, static=True)
        logits = _logits(model.config, read, "int8", tokens, tmp_path, inputs)
        return float(np.abs(logits - expected).mean() / np.abs(expected).mean())

    peaks, no_peaks = _calibrate(planted, tokens), _calibrate(plain, tokens)
    rough = error(planted, planted.read, peaks)
    smooth = error(planted, *smoothed(planted.config, planted.read, peaks, 0.5))
    assert smooth < rough / 6  # measured: 0.075 and 1.0
    # Without outliers there is little to gain ...
    without = error(plain, plain.read, no_peaks)
    assert error(plain, *smoothed(plain.config, plain.read, no_peaks, 0.5)) > without / 2
    # ... and it is the outliers' own columns that must be smoothed.
    elsewhere = {name: np.roll(values, 7) for name, values in peaks.items()}
    read, _ = smoothed(planted.config, planted.read, elsewhere, 0.5)
    assert error(planted, read, _peaks_behind(planted, read, peaks)) > 3 * smooth


def _plant_outliers(model: Tiny) -> None:
    """Make one channel behind every norm large, and its columns small: the same model."""
    import torch

    state = model.model.state_dict()
    with torch.no_grad():
        for index in range(model.config.layers):
            for norm, linears in GROUPS.items():
                state[f"model.layers.{index}.{norm}.weight"][5] *= PLANTED
                for linear in linears:
                    state[f"model.layers.{index}.{linear}.weight"][:, 5] /= PLANTED


def _calibrate(model: Tiny, tokens: Sequence[int]) -> dict[str, NDArray[np.float32]]:
    """The largest magnitude of every linear layer's input columns over `tokens`."""
    import torch

    peaks: dict[str, NDArray[np.float32]] = {}

    def watch(name: str) -> None:
        def record(_: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
            peaks[name] = inputs[0].abs().amax(dim=(0, 1)).numpy()

        handles.append(model.model.get_submodule(name).register_forward_pre_hook(record))

    handles: list[torch.utils.hooks.RemovableHandle] = []
    for name, module in model.model.named_modules():
        if isinstance(module, torch.nn.Linear):
            watch(name)
    model.logits(tokens)
    for handle in handles:
        handle.remove()
    return peaks


def _peaks_behind(model: Tiny, read: TensorReader, peaks: Statistics) -> Statistics:
    """The peaks of a model whose norms were changed into those of `read`."""
    after = dict(peaks)
    for index in range(model.config.layers):
        for norm, linears in GROUPS.items():
            name = f"model.layers.{index}.{norm}.weight"
            for linear in linears:
                after[f"model.layers.{index}.{linear}"] = (
                    peaks[f"model.layers.{index}.{linear}"] * read(name) / model.read(name)
                )
    return after


def _logits(
    config: DecoderConfig,
    read: TensorReader,
    precision: str,
    tokens: Sequence[int],
    folder: Path,
    inputs: Int8Inputs | None = None,
) -> NDArray[np.float32]:
    write_weights(config, read, precision, folder, inputs=inputs)
    ir.save(build_contract(config, Weights(folder), CONTEXT), folder / "model.onnx")
    return ContractEngine(folder / "model.onnx", threads=1).step(tokens)


def _random_peaks(config: DecoderConfig) -> dict[str, NDArray[np.float32]]:
    """Over three orders of magnitude, and equal for layers that read the same rows."""
    return {
        name.removesuffix(".weight"): (
            10 ** np.random.default_rng(shape[1]).uniform(-1, 2, shape[1])
        ).astype(np.float32)
        for name, shape in tensor_shapes(config).items()
        if len(shape) == 2
    }


def _differ(read: TensorReader, other: TensorReader, name: str) -> bool:
    return not np.array_equal(read(name), other(name))
