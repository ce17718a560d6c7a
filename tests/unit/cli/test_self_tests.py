"""`speccompile doctor` where plans can run: it tests and marks them, and others heed the mark."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from speccompile.cli.main import main
from speccompile.runtime.user_cache import default_cache
from tests.cuda import FakeGpu, give_gpus, give_library
from tests.table_artifact import (
    FOLDER,
    GPU_ENGINES,
    TARGET,
    TablePlans,
    give_tables,
    write_artifact,
)
from tests.table_model import half

Command = Callable[..., tuple[int, str, str]]

PROMPT = ("w1 w2 w3", "--raw", "-n", "12", "--draft", "model", "--draft-length", "3")
UNVERIFIED = f"{FOLDER}  can run on GPU 0, not verified on this GPU"
FAILED = f"{FOLDER}  fails its self-test on GPU 0"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECCOMPILE_CACHE", str(tmp_path / "cache"))
    give_library(monkeypatch, "1.7.1.116")
    give_gpus(monkeypatch, FakeGpu())
    give_tables(monkeypatch)
    return write_artifact(tmp_path / "tiny")


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> TablePlans:
    """What opens plans; a test may spoil them."""
    plans = TablePlans()
    monkeypatch.setattr("speccompile.runtime.device_engines.open_on_gpu", plans)
    return plans


@pytest.fixture
def speccompile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], plans: TablePlans
) -> Command:
    """Calls the command; returns exit code, output and error output."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["speccompile", *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        assert plans.closed == len(plans.opened)
        return int(ended.value.code or 0), captured.out, captured.err

    return run


def headline(output: str) -> str:
    return next(line for line in output.splitlines() if line.startswith(f"{FOLDER}  "))


def test_plans_that_pass_are_verified_and_run_from_then_on(
    speccompile: Command, root: Path, plans: TablePlans
) -> None:
    code, text, said = speccompile("run", root, *PROMPT)
    assert said.endswith(", on cpu\n")

    code, output, error = speccompile("doctor", root)
    assert (code, error) == (0, "")
    assert re.fullmatch(
        rf"{FOLDER}  can run here, verified on GPU 0 \(\d{{4}}-\d\d-\d\d\)", headline(output)
    )
    passed = f"test of {FOLDER} passed 14 checks, with plans of 40 and 72 slots"
    assert passed in " ".join(output.split())
    assert f"can run here: cpu, {FOLDER}" in " ".join(output.split())
    assert [pair.capacity for pair in plans.opened] == [40, 72]
    assert max(map(len, output.splitlines())) <= 80

    code, again, said = speccompile("run", root, *PROMPT)
    assert (code, again) == (0, text)
    assert said.endswith(f", on {FOLDER}\n")
    assert "plain speed measured at build" not in said  # which was the CPU's
    assert speccompile("run", root, *PROMPT, "--on", "cpu")[2].endswith(", on cpu\n")
    speccompile("run", root, *PROMPT, "--context", "30")
    assert [pair.capacity for pair in plans.opened] == [40, 72, 72, 40]


def test_without_a_test_the_mark_is_what_counts(
    speccompile: Command, root: Path, plans: TablePlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, output, _ = speccompile("doctor", root, "--no-self-test")
    assert (code, headline(output)) == (0, UNVERIFIED)
    assert f"{FOLDER} (not verified)" in " ".join(output.split())
    assert plans.opened == []
    speccompile("doctor", root)
    assert "verified on GPU 0" in headline(speccompile("doctor", root, "--no-self-test")[1])
    give_gpus(monkeypatch, FakeGpu(uuid=bytes(16)))
    assert headline(speccompile("doctor", root, "--no-self-test")[1]) == UNVERIFIED


def test_plans_that_fail_are_refused_and_lose_their_mark(
    speccompile: Command, root: Path, plans: TablePlans
) -> None:
    speccompile("doctor", root)
    plans.target = half(-TARGET)
    code, output, error = speccompile("doctor", root)
    assert code == 5
    assert headline(output) == FAILED
    assert f"cannot: {FOLDER} (fails its self-test)" in " ".join(output.split())
    assert error.count("\n") == 1
    assert f"{FOLDER} on GPU 0 fails its self-test: plans of 40 slots, target logits: " in error
    assert "is above 0.02" in error
    assert headline(speccompile("doctor", root, "--no-self-test")[1]) == UNVERIFIED
    assert speccompile("run", root, *PROMPT)[2].endswith(", on cpu\n")
    # Whoever insists may still have them.
    assert speccompile("run", root, *PROMPT, "--on", FOLDER)[2].endswith(f", on {FOLDER}\n")


def test_json_has_the_figures(speccompile: Command, root: Path) -> None:
    code, output, _ = speccompile("doctor", root, "--json")
    assert code == 0
    engines = {engine["name"]: engine for engine in json.loads(output)["artifact"]["engines"]}
    tested = engines[FOLDER]
    assert (tested["runs"], tested["failed"]) == (True, False)
    assert tested["verified"].endswith("+00:00")
    checks = {check["name"]: check for check in tested["figures"]["72"]}
    assert checks["target logits"]["details"]["relative_error"] < 1e-3
    assert checks["rows"]["details"]["bit_equal"] is True
    assert engines["cpu"]["verified"] is engines["cpu"]["figures"] is None


def test_a_changed_plan_is_not_run(speccompile: Command, root: Path, plans: TablePlans) -> None:
    path = root / GPU_ENGINES.plans[0].plan
    path.write_bytes(path.read_bytes().upper())
    code, output, error = speccompile("doctor", root)
    assert (code, output) == (3, "")
    assert "the content of" in error
    assert plans.opened == []


def test_nothing_to_compare_with_is_no_verification(
    speccompile: Command, root: Path, plans: TablePlans, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speccompile.runtime.host.platform.machine", lambda: "pdp11")
    code, output, error = speccompile("doctor", root)
    assert (code, error) == (0, "")
    assert headline(output) == UNVERIFIED
    reason = f"test of {FOLDER} not run, as there is nothing to compare with"
    assert reason in " ".join(output.split())
    assert plans.opened == []


def test_a_cache_that_cannot_be_written_is_no_verification(
    speccompile: Command, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("SPECCOMPILE_CACHE", str(tmp_path / "file"))
    code, output, _ = speccompile("doctor", root)
    assert (code, headline(output)) == (0, UNVERIFIED)
    assert "but cannot be marked as verified: " in " ".join(output.split())


def test_where_to_run_is_asked_for_by_name(
    speccompile: Command, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code, _, error = speccompile("run", root, *PROMPT, "--on", "sm89")
    assert (code, error) == (
        2,
        f"error: {root} has no engines 'sm89'; choose one of auto, {FOLDER}, cpu\n",
    )
    give_gpus(monkeypatch)
    for command, more in (("run", PROMPT), ("bench", ()), ("verify", ())):
        code, output, error = speccompile(command, root, *more, "--on", FOLDER)
        assert (code, output) == (4, "")
        assert error.count("\n") == 1
        assert "cannot run here: it needs GPU sm89, here is none" in error
    code, _, error = speccompile("run", root, *PROMPT, "--context", "65")
    assert (code, "a context of 65 tokens; it has 1 to 64" in error) == (2, True)


def test_a_proof_says_where_it_ran(speccompile: Command, root: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("w1 w2 w3 w1\n")
    report = tmp_path / "proof.json"
    quick = (
        *("--prompts", prompts, "-n", "8", "--draft-lengths", "1,3", "--draws", "300"),
        *("--tokens-pit", "600", "--json", report),
    )
    for on in ("cpu", FOLDER):
        code, output, _ = speccompile("verify", root, *quick, "--on", on)
        lines = output.splitlines()
        assert code == 0
        assert (lines[0], lines[2], lines[-1]) == ("tiny", f"on {on}", "LOSSLESS")
        assert json.loads(report.read_text("utf-8"))["on"] == on


def test_a_benchmark_on_a_gpu(speccompile: Command, root: Path, tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("w1 w2 w3 w1\n")
    speculation = ("-n", "8", "--draft", "model", "--draft-length", "3")
    options = ("--prompts", prompts, "--raw", *speculation)
    code, output, _ = speccompile("bench", root, *options, "--on", FOLDER)
    assert code == 0
    assert f"on {FOLDER}: tensorrt_rtx fp16, 72 slots, NVIDIA L4" in output
    assert "Identical outputs: 1 of 1" in output


def test_marks_lie_in_the_user_s_cache(speccompile: Command, root: Path) -> None:
    speccompile("doctor", root)
    [file] = (default_cache() / "verified").iterdir()
    record = json.loads(file.read_text(encoding="utf-8"))
    assert record["subject"]["folder"] == FOLDER
    assert record["capacities"] == [40, 72]
