"""`check` without keys: whole or not, and what is not hashed a second time."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from speccompile.cli.main import main
from speccompile.runtime import hashed
from speccompile.runtime.artifact import hash_files
from tests.table_artifact import write_artifact

Check = Callable[..., tuple[int, str, str]]

ENGINE = "engines/draft.onnx"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECCOMPILE_CACHE", str(tmp_path / "cache"))
    return write_artifact(tmp_path / "tiny", {})


@pytest.fixture
def check(root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["speccompile", "check", str(root), *arguments])
        with pytest.raises(SystemExit) as caught:
            main()
        output = capsys.readouterr()
        return int(caught.value.code or 0), output.out, output.err

    return run


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that `--fast` had hashed, as if all had lain there for long."""
    paths: list[str] = []

    def watched(
        root: Path, wanted: Iterable[str], advance: Callable[[int], object] | None = None
    ) -> dict[str, str]:
        wanted = list(wanted)
        paths.extend(wanted)
        return hash_files(root, wanted, advance)

    monkeypatch.setattr(hashed, "hash_files", watched)
    monkeypatch.setattr(hashed, "_SETTLED_SECONDS", -3600.0)
    return paths


def test_what_is_whole(root: Path, check: Check) -> None:
    code, said, error = check()
    assert (code, error) == (0, "")
    assert f"{root} is whole: tiny, 5 files" in said


def test_the_first_fast_check_hashes_all(check: Check, read: list[str]) -> None:
    assert check("--fast")[0] == 0
    assert sorted(read) == [ENGINE, "engines/target.onnx", "tokenizer/tokenizer.json"]


def test_nothing_is_hashed_twice(root: Path, check: Check, read: list[str]) -> None:
    check()
    assert check("--fast")[0] == 0
    assert read == []
    (root / ENGINE).touch()
    assert check("--fast")[0] == 0
    assert read == [ENGINE]
    assert check("--fast")[0] == 0
    assert read == [ENGINE]


def test_a_file_in_place_of_another_is_hashed(root: Path, check: Check, read: list[str]) -> None:
    check()
    file, times = root / ENGINE, (root / ENGINE).stat()
    new = file.with_name("new")
    new.write_bytes(b"draft")
    new.replace(file)
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert check("--fast")[0] == 0
    assert read == [ENGINE]


@pytest.mark.usefixtures("read")
def test_a_time_that_was_set_back_hides_nothing(root: Path, check: Check) -> None:
    check()
    file, times = root / ENGINE, (root / ENGINE).stat()
    file.write_bytes(b"craft")
    os.utime(file, ns=(times.st_atime_ns, times.st_mtime_ns))
    code, _, error = check("--fast")
    assert (code, f"the content of '{ENGINE}' changed" in error) == (3, True)


@pytest.mark.usefixtures("read")
@pytest.mark.parametrize("name", [".git/x", "more"])
def test_fast_is_not_careless(root: Path, check: Check, name: str) -> None:
    check()
    (root / name).parent.mkdir(exist_ok=True)
    (root / name).write_bytes(b"")
    code, _, error = check("--fast")
    assert (code, f"'{name}' was added" in error) == (3, True)


def test_what_changed_just_now_is_not_remembered(
    check: Check, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another change within one tick of the file system's clock would not be seen."""
    monkeypatch.setattr(hashed, "_SETTLED_SECONDS", 3600.0)
    check()
    check("--fast")
    assert len(read) == 3


def test_damaged_memory_is_none(root: Path, check: Check, read: list[str]) -> None:
    check()
    (memory,) = (root.parent / "cache" / "hashed").iterdir()
    memory.write_bytes(memory.read_bytes().replace(b'"inode": ', b'"inode": 1'))
    assert check("--fast")[0] == 0
    assert len(read) == 3


def test_a_cache_that_cannot_be_written_costs_time_only(
    root: Path, check: Check, read: list[str]
) -> None:
    (root.parent / "cache").write_text("a file")
    for _ in range(2):
        assert check("--fast")[0] == 0
    assert len(read) == 6


def test_refusals_are_no_assertions(root: Path) -> None:
    """As `python -O` runs them."""
    (root / ENGINE).write_bytes(b"craft")
    code = "from speccompile.cli.main import main; main()"
    done = subprocess.run(
        [sys.executable, "-O", "-c", code, "check", str(root)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (3, "")
    assert f"the content of '{ENGINE}' changed" in done.stderr
