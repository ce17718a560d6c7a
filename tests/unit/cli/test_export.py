"""`speccompile export triton`: what it writes, and mistakes in one line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from speccompile.cli.main import main
from tests.table_artifact import write_artifact


def export(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int | str | None:
    """Call it as from a shell; returns the exit code."""
    monkeypatch.setattr(sys, "argv", ["speccompile", "export", "triton", *map(str, arguments)])
    with pytest.raises(SystemExit) as ended:
        main()
    return ended.value.code


def test_it_says_how_to_serve_what_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact, models = write_artifact(tmp_path / "tiny"), tmp_path / "models"
    assert export(monkeypatch, artifact, models, "--name", "chat", "--version", "3") == 0
    assert (models / "chat/3/model.py").is_file()
    said = f"wrote {models}/chat/3; serve it with:  tritonserver --model-repository {models}\n"
    assert capsys.readouterr().out == said


def test_mistakes_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    artifact, models = write_artifact(tmp_path / "tiny"), tmp_path / "models"
    assert export(monkeypatch, tmp_path / "nothing", models) == 3
    assert export(monkeypatch, artifact, models, "--name", "../chat") == 2
    assert export(monkeypatch, artifact, models) == 0
    assert export(monkeypatch, artifact, models) == 2
    (tmp_path / "file").write_text("", encoding="utf-8")
    assert export(monkeypatch, artifact, tmp_path / "file") == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(": ", 1)[0] for line in lines] == ["error"] * 4
    for line, words in zip(
        lines, ("does not exist", "--name", "another --version", "Not a directory"), strict=True
    ):
        assert words in line


def test_it_needs_no_framework(tmp_path: Path) -> None:
    artifact = write_artifact(tmp_path / "tiny")
    script = (
        "import sys\n"
        "sys.modules.update(dict.fromkeys(['torch', 'onnx', 'onnx_ir', 'pydantic']))\n"
        "from speccompile.cli.main import main\n"
        "main()\n"
    )
    command = [sys.executable, "-c", script, "export", "triton"]
    command += [str(artifact), str(tmp_path / "models")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
