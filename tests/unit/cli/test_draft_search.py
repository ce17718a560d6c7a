"""`draft search` on a small search: what it prints, writes and refuses."""

from __future__ import annotations

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from speccompile.cli.main import main
from speccompile.cli.search_view import print_rung, print_searched, search_document
from speccompile.compiler.drafts.acceptance import Acceptance
from speccompile.compiler.drafts.prediction import Pace
from speccompile.compiler.drafts.shape_search import Rung, Searched, Trial
from speccompile.compiler.drafts.shapes import Shape
from speccompile.compiler.sources.checkpoint import Provenance

PACE = Pace({1: 20.0, 9: 25.0}, cheaper=0.5, measured=True)


def trial(pace: Pace, layers: tuple[int, ...], vocabulary: int, share: float) -> Trial:
    found = Acceptance((0.5, 0.625, 0.75, 0.75), 2.125)
    return Trial(Shape(layers, vocabulary), share, found, pace.predict(share, found.positions))


def searched(pace: Pace, share: float = 0.125) -> Searched:
    best = trial(pace, (0, 1, 2, 3, 23, 25, 27, 29), 16384, share)
    other = trial(pace, (0, 29), 0, 0.5)
    rungs = [Rung(1000, [best, other], 1, True), Rung(2000, [best], 0, True)]
    target = Provenance("some/model", None, "0" * 64, None)
    return Searched(target, other.shape, pace, rungs)


def printed(each: Searched) -> str:
    output = io.StringIO()
    console = Console(file=output, width=80, highlight=False)
    for rung in each.rungs:
        print_rung(console, rung)
    print_searched(console, each)
    return output.getvalue()


@pytest.mark.parametrize("pace", [PACE, Pace()])
def test_tables_fit_a_terminal_and_end_in_lines_for_a_recipe(pace: Pace) -> None:
    text = printed(searched(pace))
    assert max(map(len, text.splitlines())) <= 80
    assert "Learned from 1,000 tokens: 2 shapes; 1 go on" in text
    assert "Learned from 2,000 tokens: 1 shape\n" in text
    assert text.endswith("\n[distil]\nlayers = [0, 1, 2, 3, 23, 25, 27, 29]\nvocabulary = 16384\n")
    assert ("tokens/s" in text) == pace.measured
    words = " ".join(text.split())
    how = "in proportion to a measured one" if pace.measured else "by the weights it reads"
    assert how in words
    predicted = searched(pace).rungs[0].trials[0].prediction
    assert f"Fastest: {predicted.speedup:.2f}x plain decoding at {predicted.length}" in words
    assert f"faster than {1 / predicted.cost:.1f}x" in words
    assert "does not pay" not in text


def test_it_says_what_does_not_pay_and_what_is_the_recipes_own() -> None:
    slow = searched(Pace(), share=0.9)
    own = replace(slow, own=slow.rungs[0].trials[0].shape)
    text = printed(own)
    assert "Fastest, the recipe's own shape: 0." in text
    assert "does not pay yet" in text


def test_what_was_stopped_names_no_best() -> None:
    whole = searched(PACE)
    part = replace(whole, rungs=[whole.rungs[0], Rung(2000, [], 0, False)])
    text = printed(part)
    assert text.endswith("Not all is tried yet: the same command goes on.\n")
    assert "[distil]" not in text
    assert "2,000" not in text
    assert search_document({}, part)["best"] is None


def test_all_figures_are_json() -> None:
    found = searched(PACE)
    document = json.loads(json.dumps(search_document({"command": "x"}, found), allow_nan=False))
    assert [rung["tokens"] for rung in document["rungs"]] == [1000, 2000]
    best = document["best"]
    assert best == document["rungs"][-1]["trials"][0]
    assert best["shape"]["layers"] == [0, 1, 2, 3, 23, 25, 27, 29]
    assert best["acceptance"]["positions"] == [0.5, 0.625, 0.75, 0.75]
    assert best["bound"] == pytest.approx(1 / best["prediction"]["cost"])
    assert document["pace"]["cheaper"] == 0.5
    assert document["own"] == {"layers": [0, 29], "vocabulary": 0}


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["speccompile", "draft", "search", *arguments])
    with pytest.raises(SystemExit) as exited:
        main()
    return int(exited.value.code or 0)


def test_a_list_that_is_none_is_refused_in_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for wrong in ("0,", "a", "0;1", "-1"):
        assert run(monkeypatch, "smollm2-135m", "--layers", wrong) == 2
        assert f"{wrong!r} is no list such as 0,1,27,29" in capsys.readouterr().err
    assert run(monkeypatch, "smollm2-135m", "--json", str(tmp_path / "no" / "x.json")) == 2
    assert "no: is not a folder" in " ".join(capsys.readouterr().err.split())
