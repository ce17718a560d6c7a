from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray
from safetensors.numpy import save_file

from speccompile.compiler.weights import (
    OUTLIER_VALUES_SUFFIX,
    OUTLIERS_SUFFIX,
    SCALE_SUFFIX,
    WEIGHTS_FILE,
    Weights,
)

TENSORS: dict[str, NDArray[np.generic]] = {
    "norm": np.array([1.5, -2.5], np.float32),
    "half": np.array([[0.1, 2.0, -3.0], [4.0, 5.0, 60_000.0]], np.float16),
    "int8": np.array([[-127, 0, 3], [1, 127, -5]], np.int8),
    "int8" + SCALE_SUFFIX: np.array([0.5, 2.0], np.float32),
    "split": np.array([[-127, 0, 3], [1, 0, -5]], np.int8),
    "split" + SCALE_SUFFIX: np.array([0.5, 2.0], np.float32),
    "split" + OUTLIERS_SUFFIX: np.array([1], np.int64),
    "split" + OUTLIER_VALUES_SUFFIX: np.array([[7.5], [-8.0]], np.float16),
}


@pytest.fixture
def weights(tmp_path: Path) -> Weights:
    save_file(TENSORS, tmp_path / WEIGHTS_FILE, metadata={"format": "np"})
    return Weights(tmp_path)


def test_is_a_mapping_of_the_tensors_alone(weights: Weights) -> None:
    assert set(weights) == set(TENSORS)
    assert len(weights) == len(TENSORS)
    assert "other" not in weights


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_point_at_their_bytes(weights: Weights, name: str, tmp_path: Path) -> None:
    tensor, expected = weights[name], TENSORS[name]
    assert tensor.offset is not None
    assert tensor.length == expected.nbytes
    content = (tmp_path / WEIGHTS_FILE).read_bytes()
    assert content[tensor.offset : tensor.offset + expected.nbytes] == expected.tobytes()
    assert tensor.shape.numpy() == expected.shape
    assert tensor.dtype == ir.DataType.from_numpy(expected.dtype)
    assert Path(tensor.path) == tmp_path / WEIGHTS_FILE
    assert tensor.location == WEIGHTS_FILE  # relative, so that the folder can be moved
    np.testing.assert_array_equal(weights.array(name), expected)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("norm", TENSORS["norm"]),
        ("half", TENSORS["half"].astype(np.float32)),
        ("int8", np.array([[-63.5, 0, 1.5], [2, 254, -10]], np.float32)),
        ("split", np.array([[-63.5, 7.5, 1.5], [2, -8, -10]], np.float32)),
    ],
)
def test_dense_is_what_is_computed_with(
    weights: Weights, name: str, expected: NDArray[np.float32]
) -> None:
    dense = weights.dense(name)
    assert dense.dtype == np.float32
    np.testing.assert_array_equal(dense, expected)
