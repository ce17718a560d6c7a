from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from speccompile.runtime.artifact import read_manifest
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.gpus import Driver, Gpu
from speccompile.runtime.manifest import Manifest
from speccompile.runtime.marks import Subject, any_mark, find_mark, remove_mark, write_mark
from speccompile.runtime.user_cache import default_cache
from tests.table_artifact import FOLDER, write_artifact

GPU = Gpu(0, "NVIDIA L4", "GPU-1", "sm89", 24_000_000_000, mig=False)
DRIVER = Driver("580.95.05", "13.1")
DATE = "2026-11-29 22:50:00+00:00"


@pytest.fixture
def manifest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manifest:
    monkeypatch.setenv("SPECCOMPILE_CACHE", str(tmp_path / "cache"))
    return read_manifest(write_artifact(tmp_path / "tiny"))


def subject(manifest: Manifest) -> Subject:
    return Subject.of(manifest, FOLDER, GPU, DRIVER)


def files() -> list[Path]:
    return sorted((default_cache() / "verified").iterdir())


def test_a_mark_is_found_again(manifest: Manifest) -> None:
    one = subject(manifest)
    assert find_mark(one) is None
    assert not any_mark(manifest)
    figures: Mapping[str, object] = {"72": [{"name": "rows", "difference": -0.25}]}
    written = write_mark(one, (40, 72), DATE, figures)
    assert find_mark(one) == written
    assert (written.capacities, written.date) == ((40, 72), DATE)
    assert any_mark(manifest)
    assert len(files()) == 1  # nothing of the writing is left


@pytest.mark.parametrize(
    "change",
    [
        {"identity": "f" * 64},
        {"folder": "tensorrt-sm89"},
        {"gpu": "GPU-2"},
        {"driver": "580.95.06"},
        {"runtime": "0.2.0"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_what_is_marked_is_the_very_subject(manifest: Manifest, change: dict[str, str]) -> None:
    one = subject(manifest)
    write_mark(one, (72,), DATE, {})
    other = replace(one, **change)
    assert find_mark(other) is None
    # Nor does the file of one, given the name of another, mark that.
    [file] = files()
    file.rename(file.with_name(other.file))
    assert find_mark(other) is None


def test_a_driver_of_unknown_version_is_known_by_its_cuda(manifest: Manifest) -> None:
    subjects = {
        Subject.of(manifest, FOLDER, GPU, driver)
        for driver in (Driver(None, "13.1"), Driver(None, "13.2"), Driver("13.1", "13.1"), None)
    }
    assert len(subjects) == 4


def test_the_marks_of_another_artifact_are_none(manifest: Manifest) -> None:
    write_mark(replace(subject(manifest), identity="0" * 64), (72,), DATE, {})
    assert not any_mark(manifest)


def test_a_later_test_replaces_and_a_failed_one_removes(manifest: Manifest) -> None:
    one = subject(manifest)
    write_mark(one, (72,), DATE, {})
    write_mark(one, (40,), DATE, {})
    found = find_mark(one)
    assert found
    assert found.capacities == (40,)
    remove_mark(one)
    assert find_mark(one) is None
    remove_mark(one)  # there is none


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"schema": 2}'])
def test_a_damaged_mark_is_none(manifest: Manifest, content: bytes) -> None:
    one = subject(manifest)
    write_mark(one, (72,), DATE, {})
    files()[0].write_bytes(content)
    assert find_mark(one) is None


def test_a_flipped_byte_is_found(manifest: Manifest) -> None:
    one = subject(manifest)
    write_mark(one, (40,), DATE, {})
    file = files()[0]
    file.write_bytes(file.read_bytes().replace(b"40", b"72"))
    assert find_mark(one) is None


def test_a_cache_that_cannot_be_written_is_said_in_one_line(
    manifest: Manifest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("SPECCOMPILE_CACHE", str(tmp_path / "file"))
    one = subject(manifest)
    with pytest.raises(SpeccompileError, match="verified: Not a directory; set SPECCOMPILE_CACHE"):
        write_mark(one, (72,), DATE, {})
    assert find_mark(one) is None
    assert not any_mark(manifest)
    remove_mark(one)
