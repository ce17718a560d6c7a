from __future__ import annotations

import logging

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from speccompile.compiler import int8
from speccompile.compiler.int8 import quantize_int8

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


def test_columns_apart_are_zero_and_widen_no_range() -> None:
    matrix = np.array([[1.0, 500.0, -2.0], [-4.0, 900.0, 1.0], [0.0, 7.0, 0.0]], np.float32)
    before = matrix.copy()
    values, scales = quantize_int8(matrix, np.array([1]))
    np.testing.assert_array_equal(values, [[64, 0, -127], [-127, 0, 32], [0, 0, 0]])
    np.testing.assert_allclose(scales[:2] * 127, [2.0, 4.0], rtol=1e-6)
    np.testing.assert_array_equal(matrix, before)  # it may be a view of the user's file


def test_blocks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = np.random.default_rng(0).normal(size=(11, 8)).astype(np.float32)
    expected = quantize_int8(matrix, np.array([2, 5]))
    monkeypatch.setattr(int8, "_BLOCK_BYTES", 4 * 8 * 3)  # three rows: the last block is short
    for ours, theirs in zip(quantize_int8(matrix, np.array([2, 5])), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)
