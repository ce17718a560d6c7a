"""`bench --variants` on hand-made results: what it measures, prints, writes and refuses."""

import io
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from speccompile.cli.bench_conditions import Conditions
from speccompile.cli.bench_sweep import print_sweep
from speccompile.cli.bench_sweep_report import render_sweep
from speccompile.cli.main import main
from speccompile.runtime.bench.ceiling import Ceiling, StepBytes
from speccompile.runtime.bench.limit import Limit
from speccompile.runtime.bench.run import Run
from speccompile.runtime.bench.sweep import Sweep, Trial
from speccompile.runtime.bench.tables import make_tables
from speccompile.runtime.bench.variants import Lineup, line_up
from speccompile.runtime.control.controller import Controller, FixedController
from speccompile.runtime.host import Host
from speccompile.runtime.measurements import Defaults
from speccompile.runtime.session import Finish, Request, Session
from speccompile.runtime.statistics import Statistics
from tests.counting import CountingEngine

DEFAULTS = Defaults("model", 4)
DRAFTERS = ("model", "ngram", "suffix", "union", "hedge")
LABELS = (("first <set>", "qa"), ("second",), ("first <set>", "qa"), ("first <set>",))


@dataclass
class FakeRunner:
    """An artifact of which only the records are read, and a tokenizer of one token a letter."""

    defaults: Defaults = DEFAULTS
    on: str = "cpu"
    roles: tuple[str, ...] = ("target", "draft")
    takes_trees: bool = True
    reads_source: bool = False
    context: int = 99
    placement: object = None
    manifest: SimpleNamespace = field(
        default_factory=lambda: SimpleNamespace(
            name="tiny",
            identity="ab" * 32,
            model=SimpleNamespace(eos_token_ids=(2,)),
            engines={},
        )
    )

    @property
    def measurements(self) -> SimpleNamespace:
        return SimpleNamespace(defaults=self.defaults)

    @property
    def usual_draft(self) -> str:
        return self.defaults.draft

    @property
    def drafts(self) -> tuple[str, ...]:
        lookups = ("ngram", "suffix", "none")
        return (*DRAFTERS, "none") if "draft" in self.roles else lookups

    def models(self, draft: str) -> tuple[str, ...]:
        return ("draft",) if draft in ("model", "union", "hedge") else ()

    def describe(self, role: str) -> str:
        return f"engine of the {role}"

    def close(self) -> None:
        pass

    def session(self, draft: str) -> Session:
        return Session(CountingEngine(), None, self.controller(draft))

    def controller(self, draft: str) -> Controller:
        return FixedController(1)

    def encode_chat(self, messages: list[dict[str, str]]) -> list[int]:
        return [ord(letter) for letter in messages[0]["content"]]


RUNNER = FakeRunner()


def sweep_of(lineup: Lineup, *, differing: str = "") -> Sweep:
    """Four prompts; each variant takes a second less than the one before it."""

    def run(place: int, name: str) -> Run:
        statistics = Statistics(
            new_tokens=3, decode_seconds=40.0 - place, rounds=1, proposed=[2], accepted=[1]
        )
        statistics.target_steps = 1
        if name == "adaptive union":
            statistics.sources.update({"suffix": 1})
        if "policies" in name:
            statistics.policies.update({"retry-wider": 1})
        ids = (1, 2, 9 if name == differing else 3)
        return Run(ids, Finish.LENGTH, statistics.decode_seconds, statistics)

    runs: Mapping[str, Run] = {
        variant.name: run(place, variant.name) for place, variant in enumerate(lineup.variants)
    }
    ceiling = Ceiling(Limit(2, (1e9,), None), {"target": StepBytes(10 * 10**9, 0)})
    return Sweep(lineup, tuple(Trial(prompt, runs) for prompt in range(4)), 4, ceiling)


def lineup(*families: str) -> Lineup:
    return line_up(RUNNER, families, draft="model", length=4, drafters=DRAFTERS)


EVERYTHING = lineup("depths", "trees", "drafters", "policies", "controller")
CONDITIONS = Conditions(
    name="tiny <b>",
    identity="ab" * 32,
    on="cpu",
    engines={"target": "openvino fp16, fp32 arithmetic"},
    draft="model",
    draft_length=4,
    speculation="model draft but where named otherwise; fixed is K=4",
    prompts=4,
    max_new_tokens=64,
    rounds=1,
    threads=0,
    host=Host("A <fast> CPU", 2, "x86_64", 1 << 30, {"numpy": "2.0"}),
    date="2026-01-02 03:04:05+00:00",
    command="speccompile bench '<script>'",
)

Bench = Callable[..., tuple[int, list[dict[str, Any]]]]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    """Run the command line without an artifact; gives its exit status and calls of `run_sweep`."""
    calls: list[dict[str, Any]] = []
    prompts = tmp_path / "first.jsonl"
    lines = [{"prompt": f"p{number}", "category": "qa"} for number in range(4)]
    prompts.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")

    def call(
        *options: str, differing: str = "", runner: FakeRunner = RUNNER
    ) -> tuple[int, list[dict[str, Any]]]:
        def run_sweep(
            opener: FakeRunner,
            prompts: list[list[int]],
            request: Request,
            lineup: Lineup,
            **more: object,
        ) -> Sweep:
            calls.append({"prompts": prompts, "request": request, "lineup": lineup, **more})
            return sweep_of(lineup, differing=differing)

        def open_runner(path: Path, **_: object) -> FakeRunner:
            return runner

        monkeypatch.setattr("speccompile.cli.bench.Runner.open", open_runner)
        monkeypatch.setattr("speccompile.cli.bench.run_sweep", run_sweep)
        argv = ["speccompile", "bench", "artifact", "--prompts", str(prompts), *options]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as exited:
            main()
        return int(exited.value.code or 0), calls

    return call


def names(call: dict[str, Any]) -> list[str]:
    return [variant.name for variant in call["lineup"].variants]


def test_families_reach_the_measurement(bench: Bench) -> None:
    status, [call] = bench("--variants", "depths, controller", "-n", "9", "--rounds", "2")
    assert status == 0
    chains = [f"K={length}" for length in (1, 2, 3, 4, 5, 6, 8, 12)]
    assert names(call) == ["plain", *chains, "adaptive"]
    assert call["lineup"].fixed == "K=4"
    assert call["rounds"] == 2
    assert call["request"].max_new_tokens == 9
    assert call["request"].draft_length is None  # it would cut off longer chains


def test_all_are_all_that_the_artifact_can_have(bench: Bench) -> None:
    bench("--variants", "all")
    no_model = FakeRunner(roles=("target",), defaults=Defaults("none", 0))
    _, [with_model, without] = bench("--variants", "all", runner=no_model)
    assert {"tree 4/8", "adaptive union", "adaptive suffix", "K=4 all policies"} <= {
        *names(with_model)
    }
    assert not any(name in names(without) for name in ("adaptive union", "adaptive model"))
    assert {variant.draft for variant in without["lineup"].variants} == {"none", "ngram", "suffix"}


def test_trees_are_left_out_where_none_are_taken(bench: Bench) -> None:
    _, [call] = bench("--variants", "trees", runner=FakeRunner(takes_trees=False))
    assert names(call) == ["plain", "K=4", "adaptive"]


def test_the_fixed_length_may_be_given(bench: Bench) -> None:
    _, [call] = bench("--variants", "controller", "--draft", "ngram", "--draft-length", "7")
    assert call["lineup"].fixed == "K=7"
    assert {variant.draft for variant in call["lineup"].variants} == {"none", "ngram"}


@pytest.mark.parametrize(
    ("options", "runner", "message"),
    [
        (("--variants", "depths,width"), RUNNER, "'width' is none of all, depths"),
        (("--variants", "all"), FakeRunner(placement="a GPU"), "add --on cpu"),
        (("--variants", "all", "--draft", "none"), RUNNER, "needs a draft"),
    ],
)
def test_what_cannot_be_compared_is_refused(
    bench: Bench,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
    runner: FakeRunner,
    message: str,
) -> None:
    assert bench(*options, runner=runner) == (2, [])
    assert message in capsys.readouterr().err


def test_figures_are_json(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    status, _ = bench("--variants", "all", "--json", "-")
    document = json.loads(capsys.readouterr().out)
    assert status == 0
    assert document["identical"] is True
    assert (document["fixed"], document["adaptive"]) == ("K=4", "adaptive")
    [table] = document["tables"]  # all prompts are of one set and category
    assert (table["category"], table["prompts"], table["static"]) == ("all", 4, "K=12")
    rows = {row["name"]: row for row in table["rows"]}
    assert rows["K=1"]["to_ceiling"] == pytest.approx(10 / 39)
    assert document["limit"]["bytes_per_second"] == 1e9
    assert rows["K=1"]["to_plain"]["median"] == pytest.approx(40 / 39)
    assert rows["K=1"]["to_static"] == pytest.approx(32 / 39)
    assert rows["adaptive union"]["sources"] == {"suffix": 1.0}
    assert document["prompts"][3] == {"text": "p3", "set": "first", "category": "qa"}
    run = document["trials"][0]["runs"]["K=4 all policies"]
    assert run["tokens"] == [1, 2, 3]
    assert run["statistics"]["policies"] == {"retry-wider": 1}
    assert document["variants"]["adaptive union"] == "union"


def test_other_outputs_are_named_and_fail(
    bench: Bench, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "b.html"
    status, _ = bench("--variants", "controller", "--html", str(page), differing="adaptive")
    out, err = capsys.readouterr()
    assert status == 1
    assert "adaptive: other outputs than plain decoding's, prompts 1, 2, 3, 4" in out
    assert "4 of 4 outputs differ from plain decoding (prompts 1, 2, 3, 4)" in err
    assert "Outputs differ" in page.read_text(encoding="utf-8")


def test_tables_fit_a_terminal() -> None:
    text = io.StringIO()
    sweep = sweep_of(EVERYTHING)
    tables = make_tables(sweep, LABELS)
    print_sweep(Console(file=text, width=80, highlight=False), CONDITIONS, sweep, tables)
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    assert "…" not in text.getvalue()
    assert [line.split("  ")[0] for line in lines if "best K is" in line] == [
        *("all", "first <set>", "qa", "second"),
    ]
    cells = ["K=1", "0.1", "26%", "2.00", "0.50", "1.03x", "1.03-1.03", "0.82x", "0.92x"]
    assert [line.split() for line in lines].count(cells) == 4
    assert ["adaptive", "union", "suffix", "100", "%"] in [line.split() for line in lines]
    assert "retry-wider 100 %" in text.getvalue()
    assert "Identical outputs: all variants, 4 of 4" in text.getvalue()


def test_without_lengths_there_is_no_best_one() -> None:
    text = io.StringIO()
    sweep = sweep_of(lineup("controller"))
    tables = make_tables(sweep, LABELS)
    print_sweep(Console(file=text, width=80, highlight=False), CONDITIONS, sweep, tables)
    assert "best K is" not in text.getvalue()
    page = render_sweep(CONDITIONS, sweep, tables)
    assert "not measured" in page
    assert "over best K" not in page


def test_the_report_shows_and_escapes() -> None:
    sweep = sweep_of(EVERYTHING)
    page = render_sweep(CONDITIONS, sweep, make_tables(sweep, LABELS))
    assert page == render_sweep(CONDITIONS, sweep, make_tables(sweep, LABELS))
    for text in ("tiny &lt;b&gt;", "first &lt;set&gt;", "suffix 100 %", "retry-wider 100 %"):
        assert text in page
    assert "<script" not in page
    assert page.count("<svg") == 1 + 4 * len(EVERYTHING.variants)
    assert "1.03\xd7" in page
    assert page.count("26 %") == 2 * 4  # K=1 and K=2 in each table: 10 of 39 and of 38 s
    assert "1.0 GB/s, 2 threads<" in page


def test_without_a_limit_no_share_is_shown() -> None:
    sweep = replace(sweep_of(lineup("controller")), ceiling=None)
    tables = make_tables(sweep, LABELS)
    text = io.StringIO()
    print_sweep(Console(file=text, width=80, highlight=False), CONDITIONS, sweep, tables)
    assert "follows from" not in text.getvalue()
    assert "of ceiling" not in render_sweep(CONDITIONS, sweep, tables)


def test_the_report_counts_what_differs() -> None:
    sweep = sweep_of(EVERYTHING, differing="K=2")
    page = render_sweep(CONDITIONS, replace(sweep), make_tables(sweep, LABELS))
    assert "K=2 on 4 of 4 prompts" in page
    assert '<span class="bad">4 differ</span>' in page
