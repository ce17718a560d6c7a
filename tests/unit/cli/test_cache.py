"""The commands on a hand-made cache."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from speccompile.cli.main import main
from speccompile.compiler.cache import StageCache

DAY = 86400
SpecCompile = Callable[..., tuple[int, str, str]]


@pytest.fixture
def speccompile(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> SpecCompile:
    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["speccompile", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        return int(ended.value.code or 0), captured.out, captured.err

    return run


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two results, the smaller one used 10 days ago, and a download of 10 days ago."""
    monkeypatch.delenv("SPECCOMPILE_CACHE_LIMIT", raising=False)
    root = tmp_path / "cache"
    old = time.time() - 10 * DAY
    with StageCache(root, 10**9) as cache:
        for name, size in (("export-target-ab12", 2_500_000), ("load-target-cd34", 1_000)):
            with cache.scratch(name) as scratch:
                (scratch / "file").write_bytes(bytes(size))
                cache.keep(scratch)
    os.utime(root / "stages" / "load-target-cd34", (old, old))
    download = root / "downloads" / "ef56"
    download.mkdir(parents=True)
    (download / "[model].gguf").write_bytes(bytes(70_000))
    os.utime(download, (old, old))
    return root


def held(root: Path) -> set[str]:
    return {path.name for path in (*root.glob("stages/*"), *root.glob("downloads/*"))}


def test_show_lists_what_was_used_last_first(speccompile: SpecCompile, root: Path) -> None:
    code, out, err = speccompile("cache", "show", "--cache", root)
    assert (code, err) == (0, "")
    lines = [line.split() for line in out.splitlines() if line]
    today = time.strftime("%Y-%m-%d")
    assert lines[0] == ["stage", "size", "last", "used"]
    assert lines[1][:4] == ["export-target", "2.5", "MB", today]
    assert lines[2][:3] == ["load-target", "1.0", "kB"]
    assert lines[3] == ["download", "size", "fetched"]
    assert lines[4][:3] == ["[model].gguf", "70.0", "kB"]
    assert out.splitlines()[-1] == (f"2.5 MB of 20.0 GB in stages, 70.0 kB in downloads, in {root}")


def test_show_as_json(
    speccompile: SpecCompile, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCOMPILE_CACHE", str(root))
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT", "3MB")
    document = json.loads(speccompile("cache", "show", "--json")[1])
    assert document["path"] == str(root)
    assert (document["limit_bytes"], document["stages_bytes"]) == (3_000_000, 2_501_000)
    assert [entry["stage"] for entry in document["stages"]] == ["export-target", "load-target"]
    assert document["downloads"][0]["name"] == "[model].gguf"
    assert document["downloads_bytes"] == document["downloads"][0]["bytes"] == 70_000


def test_an_absent_cache_is_empty_and_stays_absent(
    speccompile: SpecCompile, tmp_path: Path
) -> None:
    code, out, _ = speccompile("cache", "show", "--cache", tmp_path / "none")
    assert (code, out.splitlines()) == (
        0,
        [f"0 B of 20.0 GB in stages, 0 B in downloads, in {tmp_path / 'none'}"],
    )
    assert speccompile("cache", "clear", "--cache", tmp_path / "none")[0] == 0
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("options", "left"),
    [
        ([], set[str]()),
        (["--stages"], {"ef56"}),
        (["--downloads"], {"export-target-ab12", "load-target-cd34"}),
        (["--older-than", "7d"], {"export-target-ab12"}),
        (["--older-than", "2w"], {"export-target-ab12", "load-target-cd34", "ef56"}),
        (["--older-than", "240h", "--stages"], {"export-target-ab12", "ef56"}),
    ],
)
def test_clear_removes_what_was_asked_for(
    speccompile: SpecCompile, root: Path, options: list[str], left: set[str]
) -> None:
    code, _, err = speccompile("cache", "clear", "--cache", root, *options)
    assert (code, err) == (0, "")
    assert held(root) == left


def test_clear_says_what_was_freed(speccompile: SpecCompile, root: Path) -> None:
    out = speccompile("cache", "clear", "--cache", root)[1]
    assert out == "freed 2.5 MB: 2 results\nfreed 70.0 kB: 1 download\n"


def test_clear_keeps_what_a_build_uses_and_says_so(speccompile: SpecCompile, root: Path) -> None:
    with StageCache(root, 10**9) as cache:
        assert cache.find("export-target-ab12")
        code, out, err = speccompile("cache", "clear", "--cache", root)
    assert out == "freed 1.0 kB: 1 result; 1 result kept, in use or not ours\n"
    assert (code, err) == (2, f"error: {root}: a build is using it; wait until it ends\n")
    assert held(root) == {"export-target-ab12", "ef56"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["cache", "clear", "--older-than", "7"], "a time such as 90m, 12h, 7d or 2w"),
        (["cache", "clear", "--older-than", "-1d"], "a time such as 90m, 12h, 7d or 2w"),
        (["cache", "shwo"], "shwo"),
        (["cahce"], "no such command: cahce; did you mean cache?"),
        (["frobnicate"], "no such command: frobnicate; there are build, run,"),
    ],
)
def test_mistakes_say_the_way_out(
    speccompile: SpecCompile, arguments: list[str], message: str
) -> None:
    code, out, err = speccompile(*arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert "Traceback" not in err


def test_a_wrong_limit_is_one_line(
    speccompile: SpecCompile, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECCOMPILE_CACHE_LIMIT", "lots")
    monkeypatch.chdir(root)
    for arguments in (["cache", "show"], ["build", "smollm2-135m", "--cache", str(root)]):
        code, _, err = speccompile(*arguments)
        assert (code, err.count("\n")) == (2, 1)
        assert "SPECCOMPILE_CACHE_LIMIT is 'lots'; it should be a size" in err
    assert sorted(path.name for path in root.iterdir()) == ["downloads", "stages"]
