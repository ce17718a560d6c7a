"""The command on a hand-made comparison: what it asks for, prints, writes and refuses."""

import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from speccompile.cli.comparison_report import Circumstances, render_comparison
from speccompile.cli.comparison_view import views
from speccompile.cli.main import main
from speccompile.cli.quantize import print_views
from speccompile.compiler.comparison import Comparison, DraftRow, TargetRow
from speccompile.runtime.host import Host

COST_MS = dict.fromkeys(range(1, 10), 1234.5)
HOST = Host("A <fast> CPU", 2, "x86_64", 1 << 30, {"numpy": "2.0"})
CIRCUMSTANCES = Circumstances(HOST, "2026-01-02 03:04:05+00:00", "speccompile quantize '<script>'")


def target(precision: str, speedup: float, increase: float, *, chosen: bool = False) -> TargetRow:
    return TargetRow(
        precision=precision,
        backend="onnxruntime",
        arithmetic="fp32",
        min_rows=2,
        bytes=123_456_789_012,
        cost_ms=COST_MS,
        speedup=speedup,
        perplexity_increase=increase,
        kl_divergence=increase / 10,
        top1_agreement=1.0,
        chosen=chosen,
    )


def draft(precision: str, speedup: float, length: int) -> DraftRow:
    return DraftRow(
        precision=precision,
        backend="onnxruntime",
        arithmetic="fp32",
        bytes=1_234_567,
        cost_ms=COST_MS,
        acceptance=0.75,
        full_acceptance=0.7521,
        kl_divergence=0.0123,
        predicted_speedup=speedup,
        draft_length=length,
        chosen=precision == "int8",
    )


COMPARISON = Comparison(
    recipe="tiny [/b] & <b>bold</b>",
    target=(
        target("fp32", 1.0, -1e-9),
        target("fp16", 1.05, 1e-5, chosen=True),
        replace(target("bf16", 1.3, 3e-4), min_rows=0),
        target("int8", 1.9, 0.004),
        target("mixed", 2.5, 0.02),
    ),
    draft=(
        draft("fp32", 1.0, 0),
        draft("fp16", 1.1, 1),
        draft("bf16", 1.3, 2),
        draft("int8", 2.25, 7),
        draft("mixed", 2.0, 8),
    ),
    verified_by="onnxruntime fp16",
    max_perplexity_increase=None,
)
NONE = replace(
    COMPARISON,
    target=COMPARISON.target[4:],
    draft=COMPARISON.draft[:1],
    max_perplexity_increase=0.015,
)

Quantize = Callable[..., tuple[int, list[tuple[Any, ...]]]]


@pytest.fixture
def quantize(monkeypatch: pytest.MonkeyPatch) -> Quantize:
    """Run the command line; gives its exit status and the calls to `compare`."""
    calls: list[tuple[Any, ...]] = []

    def compare(*arguments: object) -> Comparison:
        calls.append(arguments)
        return COMPARISON

    def call(*options: str) -> tuple[int, list[tuple[Any, ...]]]:
        monkeypatch.setattr("speccompile.cli.quantize.compare", compare)
        monkeypatch.setattr(sys, "argv", ["speccompile", "quantize", "smollm2-135m", *options])
        with pytest.raises(SystemExit) as exited:
            main()
        return int(exited.value.code or 0), calls

    return call


def printed(comparison: Comparison) -> str:
    text = io.StringIO()
    console = Console(file=text, width=80, highlight=False)
    print_views(console, comparison.recipe, views(comparison))
    return text.getvalue()


def test_without_compare_it_says_what_quantizes(
    quantize: Quantize, capsys: pytest.CaptureFixture[str]
) -> None:
    assert quantize() == (2, [])
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "add --compare; `speccompile build smollm2-135m` quantizes" in error


def test_everything_is_compared_unless_said_otherwise(quantize: Quantize, tmp_path: Path) -> None:
    status, [[recipe, precisions, roles, cache, _]] = quantize(
        "--compare", "--cache", str(tmp_path)
    )
    assert (status, recipe.name) == (0, "smollm2-135m")
    assert (precisions, roles, cache) == (None, ["target", "draft"], tmp_path)


def test_precisions_and_role_reach_the_comparison(quantize: Quantize) -> None:
    _, [[_, precisions, roles, *_]] = quantize(
        "--compare", "--precisions", "fp16, int8", "--role", "draft"
    )
    assert (precisions, roles) == (["fp16", "int8"], ["draft"])


def test_json_alone_on_standard_output(
    quantize: Quantize, capsys: pytest.CaptureFixture[str]
) -> None:
    assert quantize("--compare", "--json")[0] == 0
    figures = json.loads(capsys.readouterr().out)
    assert figures["recommended"] == {"target": "int8", "draft": "int8"}
    assert figures["target"][3]["speedup"] == 1.9
    assert figures["target"][1]["chosen"] is True
    assert figures["draft"][0]["cost_ms"]["9"] == 1234.5
    assert figures["command"] == "speccompile quantize smollm2-135m --compare --json"
    assert figures["host"]["cores"] > 0


def test_a_page_is_written_and_the_tables_printed(
    quantize: Quantize, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert quantize("--compare", "-q", "--html", str(tmp_path / "q.html"))[0] == 0
    assert "predicted 2.25x" in (tmp_path / "q.html").read_text(encoding="utf-8")
    out, err = capsys.readouterr()
    assert "predicted 2.25x" in out
    assert err == ""


def test_a_page_that_cannot_be_written_is_named(
    quantize: Quantize, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert quantize("--compare", "--html", str(tmp_path / "absent" / "q.html"))[0] == 1
    assert "q.html: cannot be written: No such file" in capsys.readouterr().err


def test_the_tables_fit_a_terminal_and_mark_the_recipes_own() -> None:
    text = printed(COMPARISON)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in text
    words = [line.split() for line in lines]
    assert ["*", "the", "recipe's", "own", "fp32", "fp16", "*", "bf16", "int8", "mixed"] in words
    assert ["speed-up", "1.00x", "1.05x", "1.30x", "1.90x", "2.50x"] in words
    assert ["perplexity", "+0.00%", "+0.00%", "+0.03%", "+0.40%", "+2.00%"] in words
    exact = ["from", "2"]
    assert ["rows", "exact", *exact, *exact, "never", *exact, *exact] in words
    assert ["difference", *["-0.2%"] * 5] in words
    assert ["best", "draft", "length", "0", "1", "2", "7", "8"] in words
    assert COMPARISON.recipe in text


def test_each_table_ends_with_a_recommendation() -> None:
    text = " ".join(printed(COMPARISON).split())
    assert "Recommended: int8, the fastest with exact rows and at most 1 % more" in text
    assert "Recommended: int8, predicted 2.25x at draft length 7." in text
    text = " ".join(printed(NONE).split())
    assert "at most 1.5 % more perplexity (validate.max_perplexity_increase)" in text
    assert text.count("Recommended: none.") == 2


def test_only_the_roles_compared_are_shown() -> None:
    assert [view.role for view in views(replace(COMPARISON, target=()))] == ["draft"]
    assert [view.role for view in views(replace(COMPARISON, draft=()))] == ["target"]


def test_the_page_escapes_loads_nothing_and_is_the_same_every_time() -> None:
    page = render_comparison(COMPARISON.recipe, views(COMPARISON), CIRCUMSTANCES)
    assert page == render_comparison(COMPARISON.recipe, views(COMPARISON), CIRCUMSTANCES)
    assert page.count("<svg") == 2
    assert "<script" not in page
    assert "<b>" not in page
    assert "A &lt;fast&gt; CPU" in page
    links = set(re.findall(r"(?:https?:)?//[^\s\"'<>)]+", page))
    assert links <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # namespaces
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_the_chart_labels_every_point() -> None:
    page = render_comparison(COMPARISON.recipe, views(COMPARISON), CIRCUMSTANCES)
    first = page[page.index("<svg") : page.index("</svg>")]
    for row in COMPARISON.target:
        assert re.search(rf">{row.precision}</text>", first)
    assert ">1e\N{MINUS SIGN}07</text>" in first
    assert "mathdefault" not in page
