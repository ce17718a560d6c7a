from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.compiler.decoder import DecoderConfig, LayerKind, tensor_shapes
from speccompile.compiler.quantize import Int8Inputs, StoredTensor, read_stored, write_weights
from speccompile.compiler.weights import (
    INPUT_SCALE_SUFFIX,
    OUTLIER_VALUES_SUFFIX,
    OUTLIERS_SUFFIX,
    SCALE_SUFFIX,
    WEIGHTS_FILE,
    Weights,
)
from speccompile.runtime.errors import SpeccompileError

CONFIG = DecoderConfig(
    vocab_size=16,
    hidden_size=8,
    intermediate_size=12,
    heads=2,
    kv_heads=1,
    head_dim=4,
    context_length=32,
    kinds=(LayerKind(None),),
    layer_kinds=(0,),
    tied_embeddings=True,
    norm_epsilon=1e-5,
    attention_scale=0.5,
)
LINEAR, NORM, TABLE = "model.layers.0.mlp.up_proj", "model.norm.weight", "model.embed_tokens"
MATRIX = f"{LINEAR}.weight"


@pytest.mark.parametrize(
    ("precision", "dtype"),
    [
        ("fp32", np.float32),
        ("fp16", np.float16),
        ("bf16", ml_dtypes.bfloat16),
        ("int8", np.int8),
    ],
)
def test_matrices_are_converted_and_norms_kept(
    tmp_path: Path, precision: str, dtype: type[np.generic]
) -> None:
    source = _source(CONFIG)
    stored = write_weights(CONFIG, source.__getitem__, precision, tmp_path)
    weights = Weights(tmp_path)
    for name, expected in source.items():
        is_matrix = expected.ndim == 2
        assert weights.array(name).dtype == (dtype if is_matrix else np.float32)
        assert (name + SCALE_SUFFIX in weights) == (is_matrix and precision == "int8")
        assert stored[name].precision == (precision if is_matrix else "fp32")
        if not is_matrix or precision == "fp32":
            np.testing.assert_array_equal(weights.array(name), expected)
        elif precision == "int8":
            assert np.abs(weights.dense(name) - expected).max() <= np.abs(expected).max() / 200
            assert stored[name].bytes == expected.size + 4 * len(expected)
        else:
            np.testing.assert_array_equal(weights.array(name), expected.astype(dtype))
            assert stored[name].bytes == 2 * expected.size


def test_bf16_rounds_to_nearest_even(tmp_path: Path) -> None:
    step = 2.0**-7  # of bf16, from 1 to 2
    source = _source(CONFIG)
    source[MATRIX][0, :4] = [1 + step / 2, 1 + 1.5 * step, 1 + 0.51 * step, -1 - step / 2]
    write_weights(CONFIG, source.__getitem__, "bf16", tmp_path)
    expected = [1.0, 1 + 2 * step, 1 + step, -1.0]
    np.testing.assert_array_equal(Weights(tmp_path).dense(MATRIX)[0, :4], expected)


def test_tied_embeddings_are_stored_once(tmp_path: Path) -> None:
    for tied in (True, False):
        config = replace(CONFIG, tied_embeddings=tied)
        write_weights(config, _source(config).__getitem__, "fp32", tmp_path)
        assert ("lm_head.weight" in Weights(tmp_path)) != tied


@pytest.mark.parametrize(
    ("precision", "value", "kept"),
    [
        ("fp16", 65_504.0, False),
        ("fp16", 65_505.0, True),
        ("fp16", -1e6, True),
        ("bf16", 1e6, False),
        ("bf16", -np.finfo(np.float32).max, True),
    ],
)
def test_a_tensor_beyond_the_range_is_kept_and_named(
    tmp_path: Path, precision: str, value: float, kept: bool
) -> None:
    source = _source(CONFIG)
    source[MATRIX][1, 2] = value
    stored = write_weights(CONFIG, source.__getitem__, precision, tmp_path)
    assert stored == read_stored(tmp_path)
    named = {name for name, tensor in stored.items() if tensor.kept_peak is not None}
    assert named == ({MATRIX} if kept else set())
    assert np.isfinite(Weights(tmp_path).dense(MATRIX)).all()
    if kept:
        peak = abs(float(np.float32(value)))
        assert stored[MATRIX] == StoredTensor("fp32", source[MATRIX].nbytes, kept_peak=peak)
        np.testing.assert_array_equal(Weights(tmp_path).array(MATRIX), source[MATRIX])


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16", "int8"])
@pytest.mark.parametrize("name", [MATRIX, NORM])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(
    tmp_path: Path, precision: str, name: str, value: float
) -> None:
    source = _source(CONFIG)
    source[name].flat[3] = value
    with pytest.raises(SpeccompileError, match=rf"\A{name}: holds values that are not finite"):
        write_weights(CONFIG, source.__getitem__, precision, tmp_path)
    assert not (tmp_path / WEIGHTS_FILE).exists()


def test_mixed_takes_each_matrix_at_its_own(tmp_path: Path) -> None:
    layers = {"*": "int8", "*.mlp.*": "bf16", LINEAR: "fp16"}
    stored = write_weights(CONFIG, _source(CONFIG).__getitem__, "mixed", tmp_path, layers=layers)
    assert stored[MATRIX].precision == "fp16"
    assert stored["model.layers.0.mlp.down_proj.weight"].precision == "bf16"
    assert stored["model.layers.0.self_attn.q_proj.weight"].precision == "int8"
    assert stored[NORM].precision == "fp32"


def test_outlier_columns_are_held_apart(tmp_path: Path) -> None:
    source, peaks = _source(CONFIG), _statistics(CONFIG)
    source[MATRIX][:, [1, 6]] *= 300.0  # would widen every row's range
    peaks[LINEAR][[1, 6]] = [6.0, 80.0]
    inputs = Int8Inputs(peaks, outlier_threshold=6.0)
    stored = write_weights(CONFIG, source.__getitem__, "int8", tmp_path, inputs=inputs)
    weights = Weights(tmp_path)
    columns = weights.array(MATRIX + OUTLIERS_SUFFIX)
    assert columns.dtype == np.int64
    np.testing.assert_array_equal(columns, [1, 6])
    assert not weights.array(MATRIX)[:, [1, 6]].any()
    expected = source[MATRIX][:, [1, 6]].astype(np.float16)
    apart = weights.array(MATRIX + OUTLIER_VALUES_SUFFIX)
    assert apart.dtype == np.float16
    np.testing.assert_array_equal(apart, expected)
    np.testing.assert_array_equal(weights.dense(MATRIX)[:, [1, 6]], expected)
    rest = np.delete(source[MATRIX], [1, 6], axis=1)
    error = np.abs(weights.dense(MATRIX) - source[MATRIX])
    assert np.delete(error, [1, 6], axis=1).max() <= np.abs(rest).max() / 200
    assert stored[MATRIX].outliers == 2
    assert [name for name in weights if name.endswith(OUTLIERS_SUFFIX)] == [
        MATRIX + OUTLIERS_SUFFIX
    ]


def test_outliers_beyond_fp16_are_fp32(tmp_path: Path) -> None:
    source, peaks = _source(CONFIG), _statistics(CONFIG)
    source[MATRIX][3, 1], peaks[LINEAR][1] = 70_000.0, 9.0
    inputs = Int8Inputs(peaks, outlier_threshold=6.0)
    write_weights(CONFIG, source.__getitem__, "int8", tmp_path, inputs=inputs)
    apart = Weights(tmp_path).array(MATRIX + OUTLIER_VALUES_SUFFIX)
    assert apart.dtype == np.float32
    np.testing.assert_array_equal(apart, source[MATRIX][:, [1]])


@pytest.mark.parametrize("tied", [True, False])
def test_a_table_has_no_columns_apart(tmp_path: Path, tied: bool) -> None:
    config = replace(CONFIG, tied_embeddings=tied)
    peaks = {name: values + 10 for name, values in _statistics(config).items()}
    inputs = Int8Inputs(peaks, outlier_threshold=6.0, static=True)
    write_weights(config, _source(config).__getitem__, "int8", tmp_path, inputs=inputs)
    weights = Weights(tmp_path)
    assert f"{TABLE}.weight{OUTLIERS_SUFFIX}" not in weights
    assert (f"{TABLE}.weight{INPUT_SCALE_SUFFIX}" in weights) == tied  # it is the head then
    assert (f"lm_head.weight{OUTLIERS_SUFFIX}" in weights) != tied


def test_static_inputs_get_a_step_each(tmp_path: Path) -> None:
    peaks = _statistics(CONFIG)
    peaks[LINEAR][:] = [1, 2, 3, 2, 1, 50, 0, 1]
    peaks["model.layers.0.mlp.down_proj"][:] = 0.0
    layers = {"*": "int8", "*.o_proj": "fp16"}
    for threshold, peak in ((0.0, 50.0), (6.0, 3.0)):
        inputs = Int8Inputs(peaks, threshold, static=True)
        source = _source(CONFIG).__getitem__
        write_weights(CONFIG, source, "mixed", tmp_path, layers=layers, inputs=inputs)
        weights = Weights(tmp_path)
        step = weights.array(MATRIX + INPUT_SCALE_SUFFIX)
        assert step.dtype == np.float32
        assert step.shape == ()
        assert float(step) == pytest.approx(peak / 127, rel=1e-6)
        dead = weights.array(f"model.layers.0.mlp.down_proj.weight{INPUT_SCALE_SUFFIX}")
        assert float(dead) > 0  # it is divided by
        assert f"model.layers.0.self_attn.o_proj.weight{INPUT_SCALE_SUFFIX}" not in weights


@pytest.mark.parametrize("inputs", [{"outlier_threshold": 6.0}, {"static": True}])
def test_missing_statistics_name_the_layer(tmp_path: Path, inputs: dict[str, float]) -> None:
    peaks = _statistics(CONFIG)
    del peaks[LINEAR]
    read = _source(CONFIG).__getitem__
    settings = Int8Inputs(peaks, inputs.get("outlier_threshold", 0.0), "static" in inputs)
    with pytest.raises(SpeccompileError, match=rf"\A{LINEAR}: has no calibration.*\Z"):
        write_weights(CONFIG, read, "int8", tmp_path, inputs=settings)


def test_the_same_model_gives_the_same_bytes(tmp_path: Path) -> None:
    contents: list[bytes] = []
    for _ in range(2):
        inputs = Int8Inputs(_statistics(CONFIG), 1.5, static=True)
        write_weights(CONFIG, _source(CONFIG).__getitem__, "int8", tmp_path, inputs=inputs)
        contents.append((tmp_path / WEIGHTS_FILE).read_bytes())
    assert contents[0] == contents[1]


def _source(config: DecoderConfig) -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(3)
    return {
        name: random.normal(size=shape).astype(np.float32)
        for name, shape in tensor_shapes(config).items()
    }


def _statistics(config: DecoderConfig) -> dict[str, NDArray[np.float32]]:
    return {
        name.removesuffix(".weight"): np.linspace(1.0, 2.0, shape[1], dtype=np.float32)
        for name, shape in tensor_shapes(config).items()
        if len(shape) == 2
    }
