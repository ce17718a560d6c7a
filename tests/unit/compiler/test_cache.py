"""What the cache keeps, what it removes first, and what it never does."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from speccompile.compiler.cache import (
    CacheError,
    StageCache,
    cache_limit,
    default_cache,
    parse_size,
)
from speccompile.runtime.errors import SpeccompileError

UNLIMITED = 10**12


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def put(cache: StageCache, name: str, size: int = 100) -> Path:
    with cache.scratch(name) as scratch:
        (scratch / "deep").mkdir()
        (scratch / "deep" / "file").write_bytes(bytes(size))
        return cache.keep(scratch)


def fill(root: Path, names: Iterable[str]) -> None:
    """Results of 100 bytes, each used a day after the one before, all long ago."""
    with StageCache(root, UNLIMITED) as cache:
        for day, name in enumerate(names):
            os.utime(put(cache, name), (day * 86400, day * 86400))


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "stages").iterdir())


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("20GB", 20 * 10**9),
        ("500MB", 500 * 10**6),
        ("1.5 tb", 15 * 10**11),
        ("7B", 7),
        ("3kB", 3000),
    ],
)
def test_sizes(text: str, size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert parse_size(text) == size
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT", text)
    assert cache_limit() == size


@pytest.mark.parametrize("text", ["20", "GB", "-1GB", "1,5GB", "20 gigs", "1e3MB", "٣GB", " 0"])
def test_other_sizes_are_refused_in_one_line(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT", text)
    with pytest.raises(CacheError, match=r"SPECCOMPILE_CACHE_LIMIT is .* such as 20GB or 500MB"):
        cache_limit()


def test_the_limit_is_20_gb_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPECCOMPILE_CACHE_LIMIT", raising=False)
    assert cache_limit() == 20 * 10**9
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT", "")
    assert cache_limit() == 20 * 10**9


def test_the_folder_is_the_users_unless_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECCOMPILE_CACHE", "/chosen")
    assert default_cache() == Path("/chosen")
    monkeypatch.delenv("SPECCOMPILE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert default_cache() == Path("/xdg/speccompile")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache() == Path.home() / ".cache" / "speccompile"


def test_a_result_is_found_by_the_next_build(root: Path) -> None:
    with StageCache(root, UNLIMITED) as cache:
        assert cache.find("load-1") is None
        put(cache, "load-1")
    with StageCache(root, UNLIMITED) as cache:
        assert cache.find("load-1") == root / "stages" / "load-1"
        assert [(entry.stage, entry.size) for entry in cache.results()] == [("load", 100)]


def test_a_relative_folder_is_made_absolute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with StageCache(Path("cache"), UNLIMITED) as cache:
        assert put(cache, "load-1") == tmp_path / "cache" / "stages" / "load-1"


def test_what_was_not_kept_is_gone(root: Path) -> None:
    with StageCache(root, UNLIMITED) as cache:
        with cache.scratch("load-1") as scratch:
            (scratch / "half").touch()
        assert names(root) == []


def test_what_was_used_longest_ago_goes_first(root: Path) -> None:
    fill(root, ["a-1", "b-1", "c-1", "d-1"])
    with StageCache(root, 250) as cache:
        assert cache.find("a-1")  # used: now the youngest
        assert names(root) == ["a-1", "b-1", "c-1", "d-1"]
    assert names(root) == ["a-1", "d-1"]


def test_nothing_is_removed_within_the_limit(root: Path) -> None:
    fill(root, ["a-1", "b-1"])
    with StageCache(root, 200):
        pass
    assert names(root) == ["a-1", "b-1"]


def test_a_limit_of_0_keeps_the_results_only_while_the_build_runs(root: Path) -> None:
    with StageCache(root, 0) as cache:
        put(cache, "a-1")
        assert cache.find("a-1")
    assert names(root) == []


def test_a_build_that_failed_keeps_its_results_to_be_resumed(root: Path) -> None:
    def interrupted() -> None:
        with StageCache(root, 0) as cache:
            put(cache, "a-1")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names(root) == ["a-1"]


def test_what_another_build_uses_is_not_removed(root: Path) -> None:
    fill(root, ["a-1", "b-1", "c-1"])
    with StageCache(root, UNLIMITED) as other:
        assert other.find("a-1")
        with other.scratch("d-1") as scratch:
            with StageCache(root, 0):
                pass
            assert names(root) == ["a-1", scratch.name]
            assert [entry.stage for entry in StageCache(root, 0).remove_results(1e12)] == []
            other.keep(scratch)
        with StageCache(root, 0):
            pass
        assert names(root) == ["a-1", "d-1"]
    with StageCache(root, 0):
        pass
    assert names(root) == []


def test_a_slower_build_takes_the_result_that_is_there(root: Path) -> None:
    with StageCache(root, 0) as slow, StageCache(root, 0) as fast, slow.scratch("a-1") as scratch:
        (scratch / "deep").mkdir()
        (scratch / "deep" / "file").write_text("slow")
        folder = put(fast, "a-1")
        assert slow.keep(scratch) == folder
        assert (folder / "deep" / "file").read_bytes() == bytes(100)


def test_a_slower_build_is_not_lost_when_that_result_goes(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with StageCache(root, 0) as slow, slow.scratch("a-1") as scratch:
        (scratch / "file").write_text("slow")
        with StageCache(root, UNLIMITED) as fast:
            put(fast, "a-1")
        find = StageCache.find

        def found_gone(cache: StageCache, name: str) -> Path | None:
            monkeypatch.setattr(StageCache, "find", find)
            StageCache(root, 0).remove_results(1e12)
            return find(cache, name)

        monkeypatch.setattr(StageCache, "find", found_gone)
        assert (slow.keep(scratch) / "file").read_text() == "slow"


def test_a_folder_that_is_removed_loses_its_name_first(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root, ["a-1"])

    def killed(folder: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", killed)
        with pytest.raises(KeyboardInterrupt):
            StageCache(root, 0).remove_results(1e12)
    (left,) = names(root)
    assert left.startswith("a-1.")
    with StageCache(root, UNLIMITED) as cache:
        assert cache.find("a-1") is None
    assert names(root) == []


def test_a_folder_that_may_not_be_removed_does_not_stop_the_others(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(root, ["a-1", "b-1", "c-1"])
    rename = os.rename

    def guarded(source: Path, target: Path) -> None:
        if Path(source).name == "a-1":
            raise PermissionError(errno.EPERM, "Operation not permitted")
        rename(source, target)

    monkeypatch.setattr(os, "rename", guarded)
    with StageCache(root, 200):
        pass
    assert names(root) == ["a-1", "c-1"]


def test_logs_are_kept_for_a_week(root: Path) -> None:
    fill(root, [])
    for name in ("old", "new"):
        (root / "stages" / f"{name}-1.0.log").touch()
    os.utime(root / "stages" / "old-1.0.log", (0, 0))
    with StageCache(root, UNLIMITED) as cache, cache.scratch("running-1") as scratch:
        log = scratch.with_suffix(".log")
        log.touch()
        os.utime(log, (0, 0))
        with StageCache(root, UNLIMITED):
            assert names(root) == sorted([log.name, scratch.name, "new-1.0.log"])


def test_downloads_are_not_removed_under_a_build(root: Path) -> None:
    assert StageCache(root, 0).remove_downloads(1e12) == []
    download = root / "downloads" / "ab12"
    download.mkdir(parents=True)
    (download / "model.gguf").write_bytes(bytes(10))
    with StageCache(root, 0), pytest.raises(CacheError, match="a build is using it; wait"):
        StageCache(root, 0).remove_downloads(1e12)
    assert StageCache(root, 0).remove_downloads(0) == []
    assert [entry.size for entry in StageCache(root, 0).remove_downloads(1e12)] == [10]
    assert not download.exists()


def test_a_cache_that_cannot_be_written_says_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SpeccompileError, match="Not a directory; set SPECCOMPILE_CACHE"):
        StageCache(tmp_path / "file" / "cache", 0).__enter__()


@pytest.mark.parametrize("call", ["mkdir", "fsync", "rename"])
def test_a_full_disk_says_the_way_out(
    root: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with StageCache(root, 0) as cache:
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            with pytest.raises(SpeccompileError, match="free some space, for example with `specc"):
                put(cache, "a-1")
        assert names(root) == []
        put(cache, "a-1")
