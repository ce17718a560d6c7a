from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from speccompile.compiler.calibration import input_peaks, read_statistics, write_statistics
from speccompile.runtime.errors import SpeccompileError

PEAKS = np.array([1.0, 0.0, 60.0], np.float32)


def test_statistics_are_kept(tmp_path: Path) -> None:
    write_statistics(tmp_path, {"a": PEAKS, "b": PEAKS[::-1]})
    read = read_statistics(tmp_path)
    assert set(read) == {"a", "b"}
    np.testing.assert_array_equal(input_peaks(read, "b", 3), [60.0, 0.0, 1.0])


def test_unusable_statistics_name_the_layer() -> None:
    with pytest.raises(SpeccompileError, match=r"\Ab: has no calibration"):
        input_peaks({"a": PEAKS}, "b", 3)
    with pytest.raises(SpeccompileError, match=r"\Aa: its calibration is not 4 finite peaks"):
        input_peaks({"a": PEAKS}, "a", 4)
    with pytest.raises(SpeccompileError, match=r"\Aa: its calibration is not 3 finite peaks"):
        input_peaks({"a": np.full(3, np.inf, np.float32)}, "a", 3)
