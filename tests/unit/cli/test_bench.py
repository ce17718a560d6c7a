"""The command on hand-made results: what it prints, writes and refuses, and how it exits."""

import io
import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from speccompile.cli.bench_conditions import Conditions
from speccompile.cli.bench_pairs import print_pairs
from speccompile.cli.bench_report import render_report
from speccompile.cli.main import main
from speccompile.runtime.bench.ceiling import Ceiling, StepBytes
from speccompile.runtime.bench.limit import Limit
from speccompile.runtime.bench.pairs import COST_ROWS, BenchResult, Pair
from speccompile.runtime.bench.run import Run
from speccompile.runtime.host import Host
from speccompile.runtime.measurements import Defaults
from speccompile.runtime.session import Finish
from speccompile.runtime.statistics import Statistics

HOST = Host("A <fast> CPU", 2, "x86_64", 1 << 30, {"numpy": "2.0"})
CONDITIONS = Conditions(
    name="tiny [/b] & <b>bold</b>",
    identity="ab" * 32,
    on="cpu",
    engines={"target": "openvino fp16, fp32 arithmetic"},
    draft="model",
    draft_length=4,
    speculation="model draft, adaptive controller, at most 4 a round",
    prompts=3,
    max_new_tokens=64,
    rounds=1,
    threads=0,
    host=HOST,
    date="2026-01-02 03:04:05+00:00",
    command="speccompile bench '<script>'",
)
DEFAULTS = Defaults("model", 4)
PROMPTS = ["<script>alert('$x$')</script>", "日本語 \x07", "short"]

Bench = Callable[..., tuple[int, list[dict[str, Any]]]]


def run(seconds: float, tokens: tuple[int, ...] = (1, 2, 3)) -> Run:
    statistics = Statistics(
        new_tokens=len(tokens),
        rounds=2,
        proposed=[2, 1],
        accepted=[1, 1],
        first_token_seconds=0.25,
        decode_seconds=seconds,
        draft_computing_seconds=seconds / 4,
        target_computing_seconds=seconds / 2,
        assembly_seconds=seconds / 16,
        target_steps=2,
        target_context=90,
        draft_steps=3,
        draft_context=140,
    )
    return Run(tokens, Finish.LENGTH, 0.25 + seconds, statistics)


def result_of(*pairs: Pair) -> BenchResult:
    costs = {role: {rows: 100.25 + rows for rows in COST_ROWS} for role in ("target", "draft")}
    reads = {"target": StepBytes(400_000_000, 1_000_000), "draft": StepBytes(100_000_000, 500_000)}
    return BenchResult(pairs, costs, 40, Ceiling(Limit(2, (2e9, 1.9e9), 40e9), reads))


RESULT = result_of(
    Pair(0, run(3.0), run(2.0)),
    Pair(1, run(4.0), run(1.0)),
    Pair(2, run(0.0, (1,)), run(0.0, (1,))),
)
DIFFERING = result_of(Pair(0, run(3.0), run(2.0)), Pair(1, run(4.0), run(1.0, (1, 2, 4))))


class FakeRunner:
    """An artifact of which only the records are read, and a tokenizer of one token a letter."""

    context = 30
    roles = ("target",)
    reads_source = False

    def __init__(self, defaults: Defaults, on: str) -> None:
        model = SimpleNamespace(eos_token_ids=(2,))
        self.manifest = SimpleNamespace(name="tiny", identity="ab" * 32, model=model, engines={})
        self.measurements = SimpleNamespace(defaults=defaults)
        self.usual_draft = defaults.draft
        self.on, self.placement = on, None if on == "cpu" else "a GPU"
        self.closed = False

    def models(self, draft: str) -> tuple[str, ...]:
        return ("draft",) if draft in ("model", "union", "hedge") else ()

    def describe(self, role: str) -> str:
        return f"{role} of plans" if self.placement else "openvino fp16, fp32 arithmetic"

    def close(self) -> None:
        self.closed = True

    def encode_raw(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        return self.encode_raw(messages[0]["content"] + ">")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    """Run the command line on a result; gives its exit status and the calls to `run_bench`."""
    calls: list[dict[str, Any]] = []
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("first\nsecond\n", encoding="utf-8")

    def call(
        *options: str, result: BenchResult = RESULT, defaults: Defaults = DEFAULTS
    ) -> tuple[int, list[dict[str, Any]]]:
        def open_runner(path: Path, *, threads: int, on: str, context: int | None) -> FakeRunner:
            assert context in (None, 30)
            return FakeRunner(defaults, "cpu" if on == "auto" else on)

        def run_bench(*arguments: object, **more: object) -> BenchResult:
            names = ("runner", "prompts", "request", "draft")
            calls.append(dict(zip(names, arguments, strict=True)) | more)
            return result

        monkeypatch.setattr("speccompile.cli.bench.Runner.open", open_runner)
        monkeypatch.setattr("speccompile.cli.bench.run_bench", run_bench)
        argv = ["speccompile", "bench", "some artifact", "--prompts", str(prompts), *options]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as exited:
            main()
        assert all(call["runner"].closed for call in calls)
        return int(exited.value.code or 0), calls

    return call


def test_options_reach_the_measurement(bench: Bench) -> None:
    status, [call] = bench("-n", "9", "--draft", "ngram", "--draft-length", "7", "--rounds", "3")
    assert status == 0
    assert call["prompts"] == [[*map(ord, "first>")], [*map(ord, "second>")]]
    assert (call["draft"], call["rounds"]) == ("ngram", 3)
    assert (call["request"].max_new_tokens, call["request"].draft_length) == (9, 7)
    assert call["request"].stop_tokens == {2}


def test_the_artifact_says_who_drafts_and_the_controller_how_much(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    _, [call] = bench("--raw", "--limit", "1")
    assert call["prompts"] == [[*map(ord, "first")]]
    assert (call["draft"], call["request"].draft_length) == ("model", None)
    assert "speculative: model draft, adaptive controller\n" in capsys.readouterr().out


def test_a_model_on_a_gpu_proposes_as_much_every_round(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    _, [call] = bench("--on", "plans")
    assert call["request"].draft_length == 4
    assert "speculative: model draft, 4 proposed a round\n" in capsys.readouterr().out
    assert bench("--on", "plans", "--draft", "model", defaults=Defaults("none", 0))[0] == 2
    assert "give --draft-length" in capsys.readouterr().err


def test_plain_against_plain_is_a_control(bench: Bench) -> None:
    _, [call] = bench("--draft", "none")
    assert (call["draft"], call["request"].draft_length) == ("none", 0)


def test_a_length_without_a_draft_is_refused(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench("--draft", "none", "--draft-length", "2") == (2, [])
    assert "give --draft model" in capsys.readouterr().err


def test_prompts_are_chosen_by_category(bench: Bench, tmp_path: Path) -> None:
    more = tmp_path / "more.jsonl"
    lines = [{"prompt": f"{name}{n}", "category": name} for name in "ab" for n in range(3)]
    more.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
    _, [call] = bench("--prompts", str(more), "--categories", "b,prompts", "--per-category", "1")
    assert call["prompts"] == [[*map(ord, "first>")], [*map(ord, "b0>")]]


def test_a_measurement_that_time_cut_short_says_so(
    bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "b.html"
    _, [call] = bench("--budget", "9", "--html", str(page), result=result_of(RESULT.pairs[0]))
    assert call["budget"] == 9.0
    said = "1 of 2 prompts in the time given"
    assert said in capsys.readouterr().out
    assert said in page.read_text(encoding="utf-8")


def test_a_prompt_beyond_the_context_is_refused_by_number(
    bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    long = tmp_path / "long.txt"
    long.write_text(f"fits\n{'x' * 28}\n", encoding="utf-8")
    assert bench("--prompts", str(long), "--categories", "long") == (2, [])
    assert capsys.readouterr().err.startswith("error: prompt 2 has 29 tokens")


def test_json_alone_on_standard_output(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    status, _ = bench("--json", "-")
    figures = json.loads(capsys.readouterr().out)
    assert status == 0
    assert figures["identical"] is True
    assert figures["speedup"] == {
        "p10": pytest.approx(1.75),
        "median": pytest.approx(2.75),
        "p90": pytest.approx(3.75),
    }
    assert figures["tokens_per_second"]["plain"]["median"] == pytest.approx((2 / 3 + 1 / 2) / 2)
    split = {"draft": 25.0, "verify": 50.0, "assembly": 6.25, "scheduling": 18.75}
    assert figures["decoding_percent"] == {"plain": split, "speculative": split}
    # 1,260 MB a generation of two tokens, at 2 GB/s; they took 2 and 1 seconds.
    assert figures["limit"]["bytes_per_second"] == 2e9
    assert figures["limit"]["uncertainty"] == pytest.approx(0.05)
    assert figures["step_bytes"]["draft"] == {"weights": 100_000_000, "row": 500_000}
    assert figures["ceiling_tokens_per_second"]["plain"]["median"] == pytest.approx(
        2 * 2e9 / 1.26e9
    )
    assert figures["share_of_ceiling"]["speculative"]["median"] == pytest.approx(0.4725)
    assert figures["acceptance"] == [0.5, 1.0]
    assert figures["tested_proposals"] == [6, 3]
    assert figures["cost_ms"]["draft"]["9"] == 109.25
    assert figures["prompts"][0] == {
        "prompt": "first",
        "identical": True,
        "speedup": 1.5,
        "share_of_ceiling": {"plain": pytest.approx(0.21), "speculative": pytest.approx(0.315)},
        "overhead_percent": {"plain": 25.0, "speculative": 25.0},
    }
    assert figures["pairs"][1]["speculative"]["tokens"] == [1, 2, 3]
    assert figures["conditions"]["command"].startswith("speccompile bench 'some artifact'")


def test_files_are_written_and_the_table_printed(
    bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, _ = bench("--json", str(tmp_path / "b.json"), "--html", str(tmp_path / "b.html"))
    assert status == 0
    assert json.loads((tmp_path / "b.json").read_text())["accepted_length"] == 2 / 3
    assert "2.75\xd7" in (tmp_path / "b.html").read_text(encoding="utf-8")
    assert "2.75x" in capsys.readouterr().out


def test_a_file_that_cannot_be_written_is_named(
    bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert bench("--json", str(tmp_path / "absent" / "b.json"))[0] == 1
    assert "b.json: No such file" in capsys.readouterr().err


def test_different_outputs_fail_after_the_figures_are_out(
    bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    status, _ = bench("--html", str(tmp_path / "b.html"), result=DIFFERING)
    out, err = capsys.readouterr()
    assert status == 1
    assert "Identical outputs: 1 of 2" in out
    assert "1 of 2 outputs differ from plain decoding (prompts 2)" in err
    assert "Outputs differ" in (tmp_path / "b.html").read_text(encoding="utf-8")


def test_on_a_gpu_other_outputs_may_be_ties_and_rounds_are_not_told_apart(
    bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def untold(each: Run) -> Run:
        return replace(each, statistics=replace(each.statistics, target_computing_seconds=0.0))

    pairs = [
        Pair(pair.prompt, untold(pair.plain), untold(pair.speculative)) for pair in DIFFERING.pairs
    ]
    page, figures = tmp_path / "b.html", tmp_path / "b.json"
    options = ("--on", "tensorrt-sm89", "--context", "30", "--json", str(figures))
    untold_result = replace(result_of(*pairs), ceiling=None)
    status, _ = bench(*options, "--html", str(page), result=untold_result)
    out, err = capsys.readouterr()
    assert (status, err) == (0, "")
    assert "on tensorrt-sm89: target of plans" in out
    ties = "Identical outputs: 1 of 2; are the others ties? `speccompile verify --on tensorrt-sm89`"
    assert ties in " ".join(out.split())
    assert "Percent of decoding" not in out
    assert "eiling" not in out
    document = json.loads(figures.read_text())
    assert document["conditions"]["on"] == "tensorrt-sm89"
    assert document["decoding_percent"] is None
    assert document["limit"] is document["share_of_ceiling"] is None
    text = page.read_text(encoding="utf-8")
    assert "Where decoding spends its time" not in text
    assert "Against the limit" not in text
    assert "<code>speccompile verify</code> tells them from faults" in text
    assert text.count("<svg") == 2 + 2


def test_without_the_drawing_library_nothing_is_measured(
    bench: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(name: str) -> None: ...

    monkeypatch.setattr("speccompile.compiler.report.drawing.find_spec", absent)
    assert bench("--html", "b.html") == (1, [])
    assert "pip install 'speccompile[report]'" in capsys.readouterr().err


@pytest.mark.parametrize("draft", ["model", "none"])
def test_the_tables_fit_a_terminal(draft: str) -> None:
    text = io.StringIO()
    console = Console(file=text, width=80, highlight=False)
    print_pairs(console, replace(CONDITIONS, draft=draft), RESULT)
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in text.getvalue()
    costs = [f"{100.25 + rows:.1f}" for rows in COST_ROWS]
    assert ["target", *costs] in [line.split() for line in lines]
    words = [line.split() for line in lines]
    assert ["speculative", "25.0", "50.0", "6.2", "18.8", "25.0"] in words
    assert ["ceiling,", "tokens/s", "3.2", "3.2"] in words
    assert ["share", "of", "the", "ceiling", "18", "%", "47", "%"] in words
    assert ["target's", "step", "reads", "400.0", "MB,"] in [each[:5] for each in words]
    assert "2.0 GB/s, 2 threads; 5 % less in the other measurement" in text.getvalue()
    assert "40 GFLOP/s; from 40 rows on" in text.getvalue()


def test_the_report_shows_the_figures() -> None:
    page = render_report(CONDITIONS, PROMPTS, RESULT)
    for figure in ("2.75\xd7", "3.75\xd7", "1.50\xd7", "4.00\xd7", "too short", "250 ms", "0.67"):
        assert figure in page
    for fact in (CONDITIONS.identity, "A &lt;fast&gt; CPU", "2026-01-02 03:04:05 UTC", "numpy 2.0"):
        assert fact in page
    for figure in ("18.8 %", "6.2 %", "3.2</td>", "47 %", "2.0 GB/s"):
        assert figure in page
    # The charts, a bar for each share of the ceiling, and for each prompt that decoded.
    assert page.count("<svg") == 3 + 2 + 2


def test_the_report_escapes_and_loads_nothing() -> None:
    page = render_report(CONDITIONS, PROMPTS, RESULT)
    assert "<script" not in page
    assert "<b>" not in page
    assert "&lt;script&gt;alert(&#39;$x$&#39;)" in page
    links = set(re.findall(r"(?:https?:)?//[^\s\"'<>)]+", page))
    assert links <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}  # namespaces
    assert not re.search(
        r"\bsrc=|@import|url\((?!#)|<link|(?<!xlink:)href=|xlink:href=\"[^#]", page
    )


def test_the_report_is_the_same_every_time_and_its_ids_are_unique() -> None:
    page = render_report(CONDITIONS, PROMPTS, RESULT)
    assert page == render_report(CONDITIONS, PROMPTS, RESULT)
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_the_report_of_plain_against_plain_has_no_acceptance() -> None:
    statistics = Statistics(
        new_tokens=3, rounds=2, target_steps=2, target_context=9, decode_seconds=1.0
    )
    plain = replace(run(1.0), statistics=statistics)
    page = render_report(CONDITIONS, ["only"], result_of(Pair(0, plain, plain)))
    assert "Nothing was proposed." in page
    assert "1.00\xd7" in page
