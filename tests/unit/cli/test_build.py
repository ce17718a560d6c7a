"""What a build prints: on made-up results, at the widths of a terminal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from speccompile.cli.main import main
from speccompile.compiler.execute import Observer, StageResult
from speccompile.compiler.usage import Usage
from speccompile.runtime.files import FileEntry
from tests.reports import build_report

Build = Callable[..., tuple[dict[str, Any], str, str]]
_STAGES = (
    StageResult("load target", Path(), True, Usage(1.5, 247_000_000)),
    StageResult("quality target onnxruntime", Path(), False, Usage(131.25, 12_345_000_000)),
)


@pytest.fixture
def build(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Build:
    """Run the command on a made-up build; gives the call, and what was printed where."""
    recipe = tmp_path / "tiny.toml"
    recipe.write_text('name = "tiny"\ntarget.source = "hf:some/model"\n', encoding="utf-8")

    def run(
        *options: str, report: dict[str, Any] | None = None, page: bool = True, width: int = 80
    ) -> tuple[dict[str, Any], str, str]:
        calls: list[dict[str, Any]] = []

        def made_up(loaded: object, destination: Path, **more: Any) -> object:  # noqa: ANN401
            calls.append({"destination": destination, **more})
            observer: Observer = more["observer"]
            for position, result in enumerate(_STAGES, start=1):
                observer.started(result.name, position, len(_STAGES))
                observer.reported("window [1] of 8")
                observer.finished(result)
            entry = FileEntry("ab" * 32, 269_000_000, "report")
            return SimpleNamespace(
                path=destination,
                manifest=SimpleNamespace(name="tiny [b]", identity="ab" * 32, files={}),
                measurements=SimpleNamespace(files={"reports/report.html": entry} if page else {}),
                report=report or build_report(),
            )

        monkeypatch.setattr("speccompile.cli.build.build", made_up)
        monkeypatch.setenv("COLUMNS", str(width))
        monkeypatch.setattr(sys, "argv", ["speccompile", "build", str(recipe), *options])
        with pytest.raises(SystemExit) as exited:
            main()
        assert exited.value.code in (0, None)
        captured = capsys.readouterr()
        return calls[0], captured.out, captured.err

    return run


@pytest.mark.parametrize("width", [80, 120])
def test_the_summary_fits_a_terminal(build: Build, width: int) -> None:
    _, out, err = build(width=width)
    lines = err.splitlines()
    assert out == ""
    assert max(map(len, lines)) <= width
    assert "…" not in err
    target = ["target", "openvino", "*", "31.0", "32.0", "34.0", "38.0", "from", "2", "269.0"]
    assert [*target, "0.0021", "98.5%", "+3.00%"] in [line.split() for line in lines]
    draft = ["draft", "openvino", "7.00", "8.00", "10.0", "14.0", "269.0"]
    assert [*draft, "0.0021", "98.5%", "+3.00%"] in [line.split() for line in lines]
    assert "tiny [b]: ms a step" in err
    assert "worth speculating: <because>" in lines
    assert "target: 1 tensor kept in fp32" in err
    assert "warning: line 2 of the [chat] template is '<a>'" in err
    assert "reports/report.html" in err


def test_every_stage_tells_what_it_took(build: Build) -> None:
    lines = [line.split() for line in build()[2].splitlines()]
    assert ["load", "target", "1.5", "s", "247", "MB", "cached"] in lines
    assert ["quality", "target", "onnxruntime", "131.2", "s", "12345", "MB"] in lines


def test_a_page_that_was_left_out_is_told(build: Build) -> None:
    _, _, err = build(page=False)
    text = " ".join(err.split())
    assert "reports/report.html was left out: matplotlib" in text
    assert "pip install 'speccompile[report]'" in text


def test_graphs_are_dumped_where_asked(build: Build) -> None:
    assert build()[0]["graphs"] is None
    call, _, err = build("--dump-stages", "some folder")
    assert call["graphs"] == Path("some folder")
    assert err.endswith("graphs before and after every pass: some folder\n")


def test_json_alone_on_standard_output(build: Build) -> None:
    _, out, err = build("--json", "-o", "place")
    assert err == ""
    assert json.loads(out) == {"path": "place", **build_report()}


def test_quiet_prints_nothing(build: Build) -> None:
    assert build("--quiet")[1:] == ("", "")
