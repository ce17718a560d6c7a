from pathlib import Path

import pytest

from speccompile.runtime.bench import limit
from speccompile.runtime.bench.limit import Limit, measure_limit


def test_the_best_measurement_counts_and_their_distance_is_kept() -> None:
    both = Limit(2, (20e9,), 60e9).joined(Limit(2, (16e9,), 64e9))
    assert (both.bandwidth, both.gemm) == (20e9, 64e9)
    assert both.uncertainty == pytest.approx(0.2)
    assert Limit(2, (20e9,), None).uncertainty == 0.0


def test_rows_balance_reading_and_multiplying() -> None:
    # In the time of 4 bytes at 20 GB/s, 16 operations are done: 8 rows of two.
    assert Limit(1, (20e9,), 80e9).balanced_rows == 8.0
    assert Limit(1, (20e9,), None).joined(Limit(1, (1e9,), None)).balanced_rows is None


def test_both_are_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit, "_SECONDS", 0.0)
    monkeypatch.setattr(limit, "_LEAST_BYTES", 1 << 20)
    monkeypatch.setattr(limit, "_TIMES_CACHE", 0)
    found = measure_limit(2)
    assert found.threads == 2
    assert found.bandwidth > 0
    assert found.gemm is not None
    assert found.gemm > 0


def test_without_openvino_nothing_is_multiplied(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None: ...

    monkeypatch.setattr(limit, "_SECONDS", 0.0)
    monkeypatch.setattr(limit, "_TIMES_CACHE", 0)
    monkeypatch.setattr(limit, "find_spec", absent)
    assert measure_limit(1).gemm is None


def test_last_level_caches_are_added_up_once_each(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for cpu, shared in enumerate(("0-1", "0-1", "2-3", "2-3")):
        for index, (level, size, those) in enumerate(
            ((1, "32K", str(cpu)), (2, "512K", str(cpu)), (3, "16384K", shared))
        ):
            folder = tmp_path / f"cpu{cpu}/cache/index{index}"
            folder.mkdir(parents=True)
            for name, text in (("level", level), ("size", size), ("shared_cpu_list", those)):
                (folder / name).write_text(f"{text}\n")
    monkeypatch.setattr(limit, "_CACHES", tmp_path)
    assert limit.last_level_bytes() == 2 * 16384 << 10
    monkeypatch.setattr(limit, "_CACHES", tmp_path / "absent")
    assert limit.last_level_bytes() == 0
