"""`push` and `pull` where there is nothing to talk to."""

import sys
from pathlib import Path

import pytest

from speccompile.cli.main import main
from tests.releases import write_release


def run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object
) -> tuple[object, str, str]:
    monkeypatch.setattr(sys, "argv", ["speccompile", *map(str, words)])
    with pytest.raises(SystemExit) as caught:
        main()
    output = capsys.readouterr()
    return caught.value.code, output.out, output.err


def no_time(seconds: float) -> None:
    """Instead of waiting."""


def test_without_the_extra(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    for name in [name for name in sys.modules if name.startswith(("oras", "speccompile.cli.p"))]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.startswith("speccompile.runtime.registry")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "oras", None)
    code, _, error = run(monkeypatch, capsys, "pull", "oci://localhost/a:1", tmp_path / "a")
    assert code == 1
    install = "pip install 'speccompile[registry]'"
    assert error == f"error: this needs the package oras; install it with: {install}\n"


@pytest.mark.parametrize("command", ["push", "pull"])
def test_no_registry(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    command: str,
) -> None:
    monkeypatch.setattr("time.sleep", no_time)
    source, to = write_release(tmp_path / "a", b"a"), "oci://127.0.0.1:1/a:1"
    words = (source, to) if command == "push" else (to, tmp_path / "b")
    code, output, error = run(monkeypatch, capsys, command, *words)
    assert (code, output) == (1, "")
    assert error == f"error: {to}: 127.0.0.1:1 cannot be reached: Connection refused\n"
    assert not (tmp_path / "b").exists()


def test_no_tag(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    source = write_release(tmp_path / "a", b"a")
    code, _, error = run(monkeypatch, capsys, "push", source, "oci://127.0.0.1:1/a")
    assert code == 1
    assert "push to a tag, as in oci://registry/name:1.0" in error


def test_other_files_are_not_replaced(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    code, _, error = run(monkeypatch, capsys, "pull", "oci://127.0.0.1:1/a:1", tmp_path)
    assert code == 1
    assert "is not an artifact; remove it or choose another destination" in error
