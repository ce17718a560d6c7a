"""The page of a build: its figures, its escaping, and what it shows where there is no draft."""

from __future__ import annotations

import re

import pytest

from speccompile.compiler.report.render import render_build
from tests.reports import build_report


@pytest.fixture(scope="module")
def page() -> str:
    return render_build(build_report())


def test_it_shows_the_figures(page: str) -> None:
    figures = ["1.82\xd7", "97.0 %", "of 210 tested", "0.42", "+3.00 %", "+3.000 %", "98.50 %"]
    figures += ["(205)", "247", "21.2", "87 → 48", "fuse_projections&nbsp;4", "71,234", "8 rows"]
    figures += ["17 outlier columns", "1 tensor kept", "134.5 M", "2026-01-02 03:04:05 UTC"]
    for figure in figures:
        assert figure in page, figure
    for fact in ("ab" * 32, "A &lt;fast&gt; CPU", "not stated", "onnx-ir&nbsp;1.1.0"):
        assert fact in page, fact
    assert page.count("<svg") == 4


def test_it_says_how_far_plans_are_proved(page: str) -> None:
    _, _, section = page.partition("<h2>Plans for GPUs</h2>")
    rows = re.findall(r"<tr><td>.*</tr>", section.partition("</section>")[0])
    assert len(rows) == 2
    for cell in ("sm89", "tensorrt_rtx 1.7.&lt;1&gt;", "1 to 16, 16 to 128", "0.0012", "2e-07"):
        assert f">{cell}<" in rows[0]
    for row, capacity in zip(rows, (2080, 1056), strict=True):
        assert f">{capacity}<" in row
        assert row.endswith("<td>not run: no GPU here</td></tr>")
    assert rows[1].count(">\u2013<") == 2  # no rehearsal of its own


def test_a_build_without_plans_says_nothing_of_gpus() -> None:
    assert "GPU" not in render_build(build_report() | {"plans": []})


def test_it_marks_what_was_chosen(page: str) -> None:
    chosen = re.findall(r'<tr class="chosen"><td>([^<]+)</td><td>([^<]+)</td>', page)
    assert chosen[:2] == [("target", "openvino"), ("draft", "onnxruntime")]
    assert page.count(">chosen<") == 2  # once in each panel of the costs


def test_long_lists_are_cut_and_say_so(page: str) -> None:
    assert "14 nodes whose output fp16 cannot hold" in page
    assert page.count("/MatMul</code>") == 12
    assert "/model/&lt;13&gt;/MatMul" in page  # the largest
    assert "and 2 more, in build.json" in page


def test_the_recipe_is_written_out_without_what_is_not_set(page: str) -> None:
    assert "<code>target.layers = [[&#34;*&#34;, &#34;int8&#34;]]</code>" in page
    assert "target.sha256" not in page
    assert "<code>draft" not in page


def test_it_escapes_and_loads_nothing(page: str) -> None:
    assert "<script" not in page
    assert "<b>" not in page
    assert "<because>" not in page
    assert "tiny [b]&lt;b&gt;bold&lt;/b&gt;" in page
    links = set(re.findall(r"(?:https?:)?//[^\s\"'<>)]+", page))
    assert links <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # namespaces
    assert not re.search(
        r"\bsrc=|@import|url\((?!#)|<link|(?<!xlink:)href=|xlink:href=\"[^#]", page
    )


def test_its_ids_are_unique(page: str) -> None:
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_a_pair_that_does_not_pay_is_no_good_news() -> None:
    report = build_report()
    report["verdict"] |= {"worth": False, "best_length": 0, "sentence": "not worth it"}
    page = render_build(report)
    assert '<p class="verdict neutral">Not worth it.</p>' in page
    assert "plain decoding is the fastest" in page


def test_an_artifact_without_draft_model_has_no_prediction() -> None:
    report = build_report()
    report["verdict"] |= {"worth": None, "cost_ratio": None, "predicted_speedup": {}}
    report["verdict"]["acceptance"] = report["validation"]["tested_proposals"] = []
    report["candidates"] = [entry for entry in report["candidates"] if entry["role"] == "target"]
    page = render_build(report)
    assert "there is no draft model" in page
    assert "Nothing was proposed." in page
    assert page.count("<svg") == 2
