from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from speccompile.compiler.quantize import quantize_int8, write_weights
from speccompile.compiler.weights import SCALE_SUFFIX, WEIGHTS_FILE, Weights
from speccompile.runtime.errors import SpeccompileError

CONFIG = DecoderConfig(16, 8, 12, 1, 2, 1, 4, 32, 10_000.0, 1e-5, True)
MATRIX, NORM = "model.layers.0.mlp.up_proj.weight", "model.norm.weight"

# Half a step of rounding to int8, and before it that of fp16: 2^-12 of a row's peak, 127 steps.
ERROR_IN_STEPS = 0.5 + 127 * 2**-12 + 1e-4


@settings(deadline=None, max_examples=200)  # no deadline: the first call imports torch
@given(
    arrays.arrays(
        np.float32,
        arrays.array_shapes(min_dims=2, max_dims=2, max_side=9),
        elements=st.floats(-(2.0**100), 2.0**100, width=32),
    )
)
def test_int8_is_within_its_bounds(matrix: NDArray[np.float32]) -> None:
    values, scales = quantize_int8(matrix)
    assert values.dtype == np.int8
    assert scales.dtype == np.float32
    assert (values.shape, scales.shape) == (matrix.shape, matrix.shape[:1])
    assert np.isfinite(scales).all()
    assert (scales > 0).all()
    peaks = np.abs(values.astype(np.int32)).max(axis=1)
    # A row below the normal numbers of fp32 is a row of zeros.
    empty = np.abs(matrix).max(axis=1) < np.finfo(np.float32).tiny
    np.testing.assert_array_equal(peaks, np.where(empty, 0, 127))
    error = np.abs(values * scales[:, None].astype(np.float64) - matrix)
    assert (error[~empty] <= ERROR_IN_STEPS * scales[~empty, None]).all()


def test_int8_rows_do_not_share_a_range() -> None:
    matrix = np.array([[1e6, -2e6, 0.0], [1e-4, 2e-5, -5e-5], [0.0, 0.0, 0.0]], np.float32)
    values, scales = quantize_int8(matrix)
    # 63.5 is halfway, and rounds to the even 64.
    np.testing.assert_array_equal(values, [[64, -127, 0], [127, 25, -64], [0, 0, 0]])
    np.testing.assert_allclose(scales[:2] * 127, [2e6, 1e-4], rtol=1e-6)


def test_only_the_missing_4_bit_kernel_is_silenced(caplog: pytest.LogCaptureFixture) -> None:
    quantize_int8(np.ones((1, 1), np.float32))
    logger = logging.getLogger("bitsandbytes.backends.cpu.ops")
    logger.warning("Failed to load CPU gemm_4bit_forward from kernels-community: %s.", "why")
    logger.warning("something that matters")
    assert caplog.messages == ["something that matters"]


@pytest.mark.parametrize(
    ("precision", "dtype"), [("fp32", np.float32), ("fp16", np.float16), ("int8", np.int8)]
)
def test_matrices_are_converted_and_norms_kept(
    tmp_path: Path, precision: str, dtype: type[np.generic]
) -> None:
    source = _source(CONFIG)
    write_weights(CONFIG, source.__getitem__, precision, tmp_path)
    weights = Weights(tmp_path)
    for name, expected in source.items():
        is_matrix = expected.ndim == 2
        assert weights.array(name).dtype == (dtype if is_matrix else np.float32)
        assert (name + SCALE_SUFFIX in weights) == (is_matrix and precision == "int8")
        if not is_matrix or precision == "fp32":
            np.testing.assert_array_equal(weights.array(name), expected)
        elif precision == "fp16":
            np.testing.assert_array_equal(weights.array(name), expected.astype(np.float16))
        else:
            assert np.abs(weights.dense(name) - expected).max() <= np.abs(expected).max() / 200


def test_tied_embeddings_are_stored_once(tmp_path: Path) -> None:
    sizes: list[int] = []
    for tied in (True, False):
        config = replace(CONFIG, tied_embeddings=tied)
        write_weights(config, _source(config).__getitem__, "fp32", tmp_path)
        assert ("lm_head.weight" in Weights(tmp_path)) != tied
        sizes.append((tmp_path / WEIGHTS_FILE).stat().st_size)
    embedding = 16 * 8 * 4
    assert embedding <= sizes[1] - sizes[0] <= embedding + 100  # and a line in the header


@pytest.mark.parametrize("value", [65_520.0, -1e6])
def test_fp16_overflow_names_the_tensor(tmp_path: Path, value: float) -> None:
    source = _source(CONFIG)
    source[MATRIX][1, 2] = value
    with pytest.raises(SpeccompileError, match=rf"\A{MATRIX}: holds .* beyond .*fp32.*\Z"):
        write_weights(CONFIG, source.__getitem__, "fp16", tmp_path)
    assert not (tmp_path / WEIGHTS_FILE).exists()


@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
@pytest.mark.parametrize("name", [MATRIX, NORM])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_values_that_are_not_finite_are_refused(
    tmp_path: Path, precision: str, name: str, value: float
) -> None:
    source = _source(CONFIG)
    source[name].flat[3] = value
    with pytest.raises(SpeccompileError, match=rf"\A{name}: holds values that are not finite"):
        write_weights(CONFIG, source.__getitem__, precision, tmp_path)


def _source(config: DecoderConfig) -> dict[str, NDArray[np.float32]]:
    random = np.random.default_rng(3)
    return {
        name: random.normal(size=shape).astype(np.float32)
        for name, shape in tensor_shapes(config).items()
    }
