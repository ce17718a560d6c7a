"""`draft evaluate` on hand-made figures: what it prints, writes and refuses."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from speccompile.cli.evaluation_report import render_evaluations
from speccompile.cli.evaluation_view import evaluation_document, labels, print_evaluations
from speccompile.cli.main import main
from speccompile.compiler.drafts.acceptance import Acceptance, Point
from speccompile.compiler.drafts.evaluation import Evaluation, Measured, Question, Training
from speccompile.compiler.drafts.figures import StepCosts, Trace, figures
from speccompile.runtime.bench.run import Spread

_RNG = np.random.default_rng(0)


def traces(mistakes: float) -> list[Trace]:
    wrong = _RNG.random((4, 60)) < mistakes
    return [Trace(row.astype(np.int64), 1.0 - 0.5 * row) for row in wrong]


def evaluation(name: str, costs: StepCosts, mistakes: float) -> Evaluation:
    domains = {"chat": traces(mistakes), "<b>code</b>": traces(mistakes / 2)}
    return Evaluation(name, "folder", figures(domains, costs, depth=4), costs)


FOLDER = replace(
    evaluation("drafts/[b]mine", StepCosts.predicted(0.125), 0.4),
    training=Training(
        vocabulary=8192,
        held_out={"chat": Acceptance((0.5, 0.625), 1.5)},
        held_out_int8={"chat": Acceptance((0.4375, 0.5), 1.25)},
        curve=tuple(
            Point(at * 1000, 1.0, 2.0 - at / 10, 0.25, (0.5, 0.5), 1.5) for at in range(1, 12)
        ),
    ),
)
_MILLISECONDS = {rows: 25.0 + rows for rows in range(1, 10)}
ARTIFACT = replace(
    evaluation("artifacts/built", StepCosts(_MILLISECONDS, {1: 2.5, 2: 3.0}, False, True), 0.3),
    kind="artifact",
    measured=Measured({"chat": Spread(1.0, 1.125, 1.25), "all": Spread(0.5, 1.375, 1.75)}, 1.9, ()),
)
CONDITIONS: dict[str, Any] = {
    "command": "speccompile draft evaluate '<script>'",
    "date": "2026-01-02 03:04:05+00:00",
    "host": {"cpu": "A <fast> CPU", "cores": 2, "packages": {"numpy": "2.0"}},
    "prompts": 8,
    "tokens": 60,
}


def printed(*evaluations: Evaluation) -> str:
    output = io.StringIO()
    print_evaluations(Console(file=output, width=80, highlight=False), evaluations)
    return output.getvalue()


def test_tables_fit_a_terminal_and_stand_side_by_side() -> None:
    text = printed(FOLDER, ARTIFACT)
    assert max(map(len, text.splitlines())) <= 80
    lines = text.splitlines()
    assert sum(line.startswith("[b]mine") for line in lines) == 6  # a title twice: it has a history
    assert sum(line.startswith("built") for line in lines) == 4
    [built] = [line for line in lines if line.startswith("built") and "measured" in line]
    assert built.split() == ["built", "2.50", "26.00", "0.096", "10.4x", "measured"]
    assert "0.125     8.0x  predicted by weights" in text
    assert "1.12x  1.00x  1.25x" in text
    assert "chat, FP32  0.500  0.625            1.50" in text
    assert "chat, INT8  0.438  0.500            1.25" in text


def test_of_a_curve_some_points_are_shown_and_the_last() -> None:
    rows = printed(FOLDER).split("what it learned")[1].split("\n")
    shown = [row.split()[0] for row in rows[2:] if row]
    assert shown[-1] == "11,000"
    assert len(shown) <= 6


def test_all_figures_are_json() -> None:
    document = json.loads(
        json.dumps(evaluation_document(CONDITIONS, [FOLDER, ARTIFACT]), allow_nan=False)
    )
    folder, artifact = document["drafts"]
    assert folder["bound"] == 8.0
    assert folder["measured"] is None
    assert len(folder["domains"]["all"]["speedups"]) == 9
    assert folder["training"]["curve"][-1]["tokens"] == 11_000
    assert artifact["measured"]["speedups"]["all"]["median"] == 1.375
    assert artifact["costs"]["measured"] is True


def test_drafts_of_one_name_are_told_apart() -> None:
    other = replace(FOLDER, name="/some/elsewhere/built")
    assert list(labels([FOLDER, ARTIFACT])) == ["[b]mine", "built"]
    assert list(labels([other, ARTIFACT])) == ["elsewhere/built", "artifacts/built"]


def test_the_report_escapes_and_draws() -> None:
    page = render_evaluations(CONDITIONS, [FOLDER, ARTIFACT])
    assert "<script>" not in page
    assert "<b>code" not in page
    assert "A &lt;fast&gt; CPU" in page
    assert page.count("<svg") == 3
    assert "1.38" in page  # measured
    assert "0.438" in page  # after INT8
    bare = render_evaluations(CONDITIONS, [replace(FOLDER, training=None)])
    assert bare.count("<svg") == 2  # no curve
    assert "measured" not in bare.split("<body>")[1].replace("measured on their own", "")


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["speccompile", "draft", "evaluate", *arguments])
    with pytest.raises(SystemExit) as exited:
        main()
    return int(exited.value.code or 0)


def test_what_is_neither_is_refused_in_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, str(tmp_path)) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"error: {tmp_path}: is neither an artifact (manifest.json) nor a draft")
    assert told.count("\n") == 1
    (tmp_path / "draft.json").write_text("{}")
    assert run(monkeypatch, str(tmp_path)) == 1
    assert "no draft that this version reads" in capsys.readouterr().err
    assert run(monkeypatch, str(tmp_path), "--prompts", "builtin:nothing") == 2
    assert "is not one of the sets that ship" in capsys.readouterr().err


def test_questions_are_counted_by_category_and_other_words_are_an_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts = tmp_path / "mine.jsonl"
    rows = [{"prompt": "one", "category": "sums"}, {"prompt": "two"}]
    prompts.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    asked: list[Question] = []

    def evaluator(*of: object) -> object:
        def evaluated(questions: list[Question], *more: object) -> list[Evaluation]:
            asked.extend(questions)
            assert ARTIFACT.measured is not None
            return [replace(ARTIFACT, measured=replace(ARTIFACT.measured, differing=(1,)))]

        return evaluated

    monkeypatch.setattr("speccompile.cli.draft_evaluate._evaluator", evaluator)
    report, figures = tmp_path / "report.html", tmp_path / "figures.json"
    where = ("--html", str(report), "--json", str(figures))
    assert run(monkeypatch, "built", "--prompts", str(prompts), *where) == 1
    assert "outputs differ from plain decoding (prompts 2)" in capsys.readouterr().err
    assert sorted(asked) == [Question("one", "sums"), Question("two", "mine")]
    assert json.loads(figures.read_text())["conditions"]["prompts"] == 2
    assert "outputs differ" in report.read_text()
