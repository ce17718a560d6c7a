"""The command on a folder of small artifacts."""

import json
import sys
from pathlib import Path

import pytest

from speccompile.cli.main import main
from tests.releases import write_release

Run = tuple[object, str, str]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "served"


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: object) -> Run:
    monkeypatch.setattr(sys, "argv", ["speccompile", "deploy", *map(str, words)])
    with pytest.raises(SystemExit) as caught:
        main()
    output = capsys.readouterr()
    return caught.value.code, output.out, output.err


def test_a_release_and_the_way_back(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    folder: Path,
) -> None:
    identities: list[str] = []
    for name in "ab":
        source = write_release(tmp_path / name, name.encode())
        code, output, _ = run(monkeypatch, capsys, folder, "--add", source)
        identities.append(output.strip())
        assert run(monkeypatch, capsys, folder, "--use", output[:12])[:2] == (code, output)
    a, b = identities
    lines = run(monkeypatch, capsys, folder)[1].splitlines()
    assert set(lines) == {f"{a}  tiny  previous", f"{b}  tiny  current"}
    assert run(monkeypatch, capsys, folder, "--rollback") == (0, f"{a}\n", "")
    document = json.loads(run(monkeypatch, capsys, folder, "--json")[1])
    assert (document["current"], document["previous"]) == (a, None)
    assert [entry["identity"] for entry in document["artifacts"]] == sorted(identities)
    code, output, error = run(monkeypatch, capsys, folder, "--rollback")
    assert (code, output) == (1, "")
    assert error == f"error: {folder}: nothing was in use before; choose with --use\n"


def test_mistakes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert run(monkeypatch, capsys, folder) == (0, "", "")
    code, _, error = run(monkeypatch, capsys, folder, "--rollback", "--use", "0" * 8)
    assert code == 2
    assert "--rollback goes alone" in error
    code, _, error = run(monkeypatch, capsys, folder, "--add", folder / "nothing")
    assert code == 3
    assert error.startswith(f"error: {folder / 'nothing'} does not exist")
    assert not folder.exists()
