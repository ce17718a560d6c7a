from __future__ import annotations

import errno
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors import safe_open

from speccompile.compiler.weights import PADDING_PREFIX, WEIGHTS_FILE, Weights
from speccompile.compiler.weights_writer import WeightsWriter

TENSORS: dict[str, NDArray[np.generic]] = {
    "matrix": np.arange(33, dtype=np.float32).reshape(3, 11),
    "half": np.array([[0.5, -2.0]], np.float16),
    "brain": np.array([[1.5, -3e38], [0.0, 2.0]], ml_dtypes.bfloat16),
    "int8": np.array([[-127, 0, 3]], np.int8),
    "columns": np.array([4, 7], np.int64),
    "step": np.array(0.25, np.float32),
    "after": np.arange(64, dtype=np.int8),
}


def test_what_is_written_is_read(tmp_path: Path) -> None:
    _write(tmp_path, TENSORS)
    weights = Weights(tmp_path)
    assert list(weights) == list(TENSORS)
    for name, expected in TENSORS.items():
        values = weights.array(name)
        assert (values.dtype, values.shape) == (expected.dtype, expected.shape)
        np.testing.assert_array_equal(values, expected)
        assert (weights[name].offset or 0) % 64 == 0


def test_the_file_is_one_that_safetensors_accepts(tmp_path: Path) -> None:
    _write(tmp_path, TENSORS)
    with safe_open(tmp_path / WEIGHTS_FILE, "np") as file:  # it refuses holes and overlaps
        names = {name for name in file.keys() if not name.startswith(PADDING_PREFIX)}  # noqa: SIM118
        assert names == set(TENSORS)
        np.testing.assert_array_equal(file.get_tensor("matrix"), TENSORS["matrix"])


def test_a_tensor_that_is_not_contiguous_is_written_in_order(tmp_path: Path) -> None:
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4).T
    _write(tmp_path, {"matrix": matrix})
    np.testing.assert_array_equal(Weights(tmp_path).array("matrix"), matrix)


def test_there_is_room_for_the_longest_header(tmp_path: Path) -> None:
    names = [f"{index}-\N{SNOWMAN}" for index in range(300)]  # escaped: six bytes in JSON
    tensors: dict[str, NDArray[np.generic]] = {name: np.ones((1, 1), np.int8) for name in names}
    _write(tmp_path, tensors)
    assert len(Weights(tmp_path)) == 300


def test_an_unannounced_tensor_is_a_bug(tmp_path: Path) -> None:
    with (
        pytest.raises(ValueError, match="pass the room"),
        WeightsWriter(tmp_path, []) as writer,
    ):
        writer.add("matrix", TENSORS["matrix"])
    assert not (tmp_path / WEIGHTS_FILE).exists()


def test_an_error_leaves_no_file(tmp_path: Path) -> None:
    with (
        pytest.raises(KeyError, match="COMPLEX64"),  # a type that no engine takes
        WeightsWriter(tmp_path, TENSORS) as writer,
    ):
        writer.add("matrix", np.ones(3, np.complex64))
    assert not (tmp_path / WEIGHTS_FILE).exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("size", [16, 1 << 20])  # noticed at the end, or at once
def test_a_full_disk_is_an_os_error(tmp_path: Path, size: int) -> None:
    (tmp_path / WEIGHTS_FILE).symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left") as caught:
        _write(tmp_path, {"matrix": np.ones(size, np.float32)})
    assert caught.value.errno == errno.ENOSPC
    assert not (tmp_path / WEIGHTS_FILE).is_symlink()


def _write(folder: Path, tensors: dict[str, NDArray[np.generic]]) -> None:
    with WeightsWriter(folder, tensors) as writer:
        for name, values in tensors.items():
            writer.add(name, values)
