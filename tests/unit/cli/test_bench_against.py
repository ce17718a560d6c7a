"""The guard against regressions, on results that are made up and written as the command does."""

import json
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from speccompile.cli.main import main
from speccompile.runtime.bench.ceiling import Ceiling
from speccompile.runtime.bench.limit import Limit
from speccompile.runtime.bench.pairs import BenchResult, Pair
from speccompile.runtime.bench.run import Run
from tests.unit.cli.test_bench import DEFAULTS, RESULT, FakeRunner, result_of, run

Bench = Callable[..., tuple[int, str, str]]

SECONDS = (3.0, 4.0, 5.0)
BEFORE = result_of(*(Pair(number, run(each), run(each / 2)) for number, each in enumerate(SECONDS)))


def slower(by: float) -> BenchResult:
    """Every speculative generation takes so many times the seconds, engines computing or not."""
    pairs = [Pair(number, run(each), run(each * by / 2)) for number, each in enumerate(SECONDS)]
    return result_of(*pairs)


def idle(share: float) -> BenchResult:
    """Engines compute less of the same time."""

    def rest(each: Run) -> Run:
        computing = each.decode_seconds * (0.75 - share)
        statistics = replace(
            each.statistics, draft_computing_seconds=0.0, target_computing_seconds=computing
        )
        return replace(each, statistics=statistics)

    return result_of(*(replace(pair, speculative=rest(pair.speculative)) for pair in BEFORE.pairs))


@pytest.fixture
def bench(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> Bench:
    """Run the command line on a result; gives its exit status and what it said."""
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("first\nsecond\nthird\n", encoding="utf-8")

    def call(result: BenchResult, *options: str) -> tuple[int, str, str]:
        def open_runner(path: Path, **settings: object) -> FakeRunner:
            return FakeRunner(DEFAULTS, "cpu")

        monkeypatch.setattr("speccompile.cli.bench.Runner.open", open_runner)

        def run_bench(*arguments: object, **more: object) -> BenchResult:
            return result

        monkeypatch.setattr("speccompile.cli.bench.run_bench", run_bench)
        argv = ["speccompile", "bench", "some artifact", "--prompts", str(prompts), *options]
        monkeypatch.setattr(sys, "argv", argv)
        with pytest.raises(SystemExit) as exited:
            main()
        out, err = capsys.readouterr()
        return int(exited.value.code or 0), out, err

    return call


@pytest.fixture
def earlier(bench: Bench, tmp_path: Path) -> Path:
    path = tmp_path / "before.json"
    assert bench(BEFORE, "--json", str(path))[0] == 0
    return path


def test_the_same_again_passes_and_every_ratio_is_shown(bench: Bench, earlier: Path) -> None:
    status, out, err = bench(BEFORE, "--against", str(earlier))
    assert (status, err) == (0, "")
    lines = {re.split(" {2,}", line)[0]: re.split(" {2,}", line) for line in out.splitlines()}
    assert lines["speed-up"] == ["speed-up", "2.00x", "2.00x", "+0.0 %", "2.0 %"]
    for mode, share in (("plain", "15.8 %"), ("speculative", "31.5 %")):
        shown = lines[f"share of the ceiling, {mode}"]  # two measurements, of 5 % each
        assert shown[1:] == [share, share, "+0.0 %", "12.0 %"]
        shown = lines[f"time without an engine, {mode}"]
        assert shown[1:] == ["25.0 %", "25.0 %", "+0.0 points", "2.0 points"]


def test_each_regression_is_a_line_and_the_command_fails(bench: Bench, earlier: Path) -> None:
    status, out, err = bench(slower(1.25), "--against", str(earlier))
    assert status == 1
    assert "Against" in out
    first, second, last = err.splitlines()
    assert first == (
        "regression: speed-up: 2.00x before, 1.60x now, -20.0 % a prompt; chance explains 2.0 %"
    )
    assert second.startswith(
        "regression: share of the ceiling, speculative: 31.5 % before, 25.2 % now"
    )
    assert last.startswith(f"error: {earlier}: 2 of 5 figures were better then; measure again")


def test_time_without_engines_is_a_regression_by_itself(bench: Bench, earlier: Path) -> None:
    status, _, err = bench(idle(0.1), "--against", str(earlier))
    assert status == 1
    assert err.splitlines()[0] == (
        "regression: time without an engine, speculative: 25.0 % before, 35.0 % now, "
        "-10.0 points a prompt; chance explains 2.0 points"
    )


def test_what_is_tolerated_passes(bench: Bench, earlier: Path) -> None:
    assert bench(slower(1.25), "--against", str(earlier), "--tolerance", "30")[0] == 0
    assert bench(slower(0.5), "--against", str(earlier))[0] == 0
    assert bench(slower(1.01), "--against", str(earlier))[0] == 0


def test_a_slower_machine_is_no_regression(bench: Bench, earlier: Path) -> None:
    """All takes twice the seconds, and memory has half the bandwidth: no ratio has changed."""
    pairs = [Pair(number, run(2 * each), run(each)) for number, each in enumerate(SECONDS)]
    assert BEFORE.ceiling is not None
    ceiling = Ceiling(Limit(2, (1e9, 0.95e9), 20e9), BEFORE.ceiling.reads)
    result = replace(result_of(*pairs), ceiling=ceiling)
    assert bench(result, "--against", str(earlier))[0] == 0


def test_json_alone_stays_alone(bench: Bench, earlier: Path) -> None:
    status, out, err = bench(slower(2.0), "--against", str(earlier), "--json", "-")
    assert status == 1
    assert json.loads(out)["identical"]
    assert err.startswith("regression: speed-up")


def test_other_conditions_are_refused_before_anything_is_measured(
    bench: Bench, earlier: Path
) -> None:
    for options, said in (
        (("--draft", "ngram"), "with draft model, this would be with ngram"),
        (("-n", "9"), "with max_new_tokens 128, this would be with 9"),
        (("--raw",), "with raw False, this would be with True"),
        (("--threads", "1"), "with threads 0, this would be with 1"),
    ):
        status, out, err = bench(BEFORE, "--against", str(earlier), *options)
        assert (status, out) == (1, "")
        assert err.startswith(f"error: {earlier}: was measured {said}")
        assert err.count("\n") == 1


def test_another_processor_and_other_prompts_are_refused(bench: Bench, earlier: Path) -> None:
    document: dict[str, Any] = json.loads(earlier.read_text())
    document["prompts"] = [prompt | {"prompt": "other"} for prompt in document["prompts"]]
    earlier.write_text(json.dumps(document))
    assert "has none of these prompts" in bench(BEFORE, "--against", str(earlier))[2]
    document["conditions"]["host"]["cpu"] = "another"
    earlier.write_text(json.dumps(document))
    assert "was measured with cpu another" in bench(BEFORE, "--against", str(earlier))[2]


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"prompts": [{}], "limit": null}', "7"])
def test_a_file_that_is_no_result_is_refused(bench: Bench, tmp_path: Path, content: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(content, encoding="utf-8")
    status, out, err = bench(RESULT, "--against", str(path))
    assert (status, out) == (1, "")
    assert err.startswith(f"error: {path}: is no result to compare with; write one with")


def test_variants_are_not_compared(bench: Bench, earlier: Path) -> None:
    status, _, err = bench(BEFORE, "--against", str(earlier), "--variants", "depths")
    assert status == 2
    assert "--against compares benchmarks without --variants" in err
