"""An artifact on the CPU and on a GPU: which engines and sessions a runner gives."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from speccompile.runtime.bench.pairs import run_bench
from speccompile.runtime.device_session import DeviceSession
from speccompile.runtime.engines.device_engine import DeviceEngine
from speccompile.runtime.errors import ArtifactError, CompatibilityError, RequestError
from speccompile.runtime.gpus import best_gpu, find_gpus
from speccompile.runtime.marks import Subject, write_mark
from speccompile.runtime.proof.prove import Plan, prove
from speccompile.runtime.runner import Runner
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.session import Request, Session
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
from tests.unit.runtime.tables import greedy_ids

PROMPT = [1, 2, 3, 1, 2]
GREEDY = greedy_ids(half(TARGET), PROMPT, 24)
NO_GPUS_IMPORTED = """
import sys
from speccompile.runtime.runner import Runner
runner = Runner.open(sys.argv[1], on=sys.argv[2])
heavy = {"cuda", "tensorrt", "tensorrt_rtx"}
loaded = [name for name in sys.modules if name.split(".")[0] in heavy]
assert not loaded, loaded
print(runner.on)
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An artifact with plans for the GPU of this host."""
    monkeypatch.setenv("SPECCOMPILE_CACHE", str(tmp_path / "cache"))
    give_library(monkeypatch, "1.7.1.116")
    give_gpus(monkeypatch, FakeGpu())
    give_tables(monkeypatch)
    return write_artifact(tmp_path / "tiny")


def on_gpu(root: Path, plans: TablePlans | None = None, context: int | None = None) -> Runner:
    return Runner.open(root, on=FOLDER, context=context, open_plans=plans or TablePlans())


def mark(runner: Runner) -> None:
    found = find_gpus()
    gpu = best_gpu(GPU_ENGINES, found)
    assert gpu
    write_mark(Subject.of(runner.manifest, FOLDER, gpu, found.driver), (72,), "2026-11-29", {})


def test_auto_is_the_cpu_until_the_plans_are_verified(root: Path) -> None:
    plans = TablePlans()
    runner = Runner.open(root, open_plans=plans)
    assert (runner.on, plans.opened) == ("cpu", [])
    mark(runner)
    runner = Runner.open(root, open_plans=plans)
    assert (runner.on, len(plans.opened)) == (FOLDER, 1)
    assert Runner.open(root, on="cpu", open_plans=plans).on == "cpu"
    assert len(plans.opened) == 1


def test_the_light_runtime_imports_nothing_for_gpus(tmp_path: Path) -> None:
    """Of an artifact without plans, of one on the CPU, and of one of which nothing is verified."""
    bare, planned = write_artifact(tmp_path / "bare", {}), write_artifact(tmp_path / "planned")
    for root, on in ((bare, "auto"), (planned, "cpu"), (planned, "auto")):
        done = subprocess.run(
            [sys.executable, "-c", NO_GPUS_IMPORTED, str(root), on],
            env={"SPECCOMPILE_CACHE": str(tmp_path / "cache")},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout == "cpu\n", done.stderr


@pytest.mark.parametrize("draft", ["model", "none", "ngram"])
def test_every_draft_says_on_a_gpu_what_the_target_says(root: Path, draft: str) -> None:
    runner = on_gpu(root)
    session = runner.session(draft)
    kind = Session if draft == "ngram" else DeviceSession
    assert isinstance(session, kind)
    assert list(session.generate(PROMPT, Request(24, draft_length=4))) == GREEDY
    assert any(session.statistics.proposed) == (draft != "none")


def test_sessions_and_engines_on_a_gpu_share_its_caches_and_begin_anew(root: Path) -> None:
    runner = on_gpu(root)
    request = Request(24, draft_length=4)
    engine = runner.engine("target")
    assert isinstance(engine, DeviceEngine)
    for draft in ("model", "ngram", "model", "none"):
        engine.rollback(0)
        engine.step([5, 5, 5, 5])  # over what the session before left
        session = runner.session(draft)
        assert list(session.generate(PROMPT, request)) == GREEDY
        assert session.statistics.reused_tokens == 0
        assert runner.engine("target").length == 0
    assert runner.engine("target") is engine


def test_a_session_on_a_gpu_reuses_what_it_has_read(root: Path) -> None:
    session = on_gpu(root).session("model")
    ids = list(session.generate(PROMPT, Request(8, draft_length=4)))
    assert list(session.generate([*PROMPT, *ids], Request(8, draft_length=4))) == GREEDY[8:16]
    assert session.statistics.reused_tokens >= len(PROMPT) + 7


def test_the_context_chooses_the_plans_and_bounds_the_sequence(root: Path) -> None:
    plans = TablePlans()
    runner = on_gpu(root, plans, context=20)
    assert [pair.capacity for pair in plans.opened] == [40]
    assert runner.describe("draft") == "tensorrt_rtx int8, 40 slots, NVIDIA L4"
    ids = list(runner.session("model").generate(PROMPT, Request(100, draft_length=4)))
    assert ids == GREEDY[:15]
    on_cpu = Runner.open(root, on="cpu", context=20)
    assert len(list(on_cpu.session("none").generate(PROMPT, Request(100)))) == 15
    for context in (0, 65):
        with pytest.raises(RequestError, match=f"a context of {context} tokens; it has 1 to 64"):
            Runner.open(root, context=context)


def test_sampled_output_on_a_gpu_is_repeated_with_its_seed(root: Path) -> None:
    runner = on_gpu(root)
    outputs = [
        tuple(runner.session("model").generate(PROMPT, Request(24, Sampling(1.0, seed=seed))))
        for seed in (1, 2, 1)
    ]
    assert outputs[0] == outputs[2] != outputs[1]


def test_text_is_streamed_from_any_session(root: Path) -> None:
    text = " ".join(f"w{token}" for token in GREEDY)
    for runner in (on_gpu(root), Runner.open(root, on="cpu")):
        prompt = runner.encode_raw("w1 w2 w3 w1 w2")
        session = runner.session("model")
        streamed = "".join(runner.stream(session, prompt, Request(24, draft_length=4)))
        assert streamed.split() == text.split()


def test_a_benchmark_and_a_proof_run_on_a_gpu(root: Path) -> None:
    runner = on_gpu(root)
    result = run_bench(runner, [PROMPT, [4]], Request(16, draft_length=3), "model")
    assert result.identical
    assert result.splits is None  # a round is one graph
    assert result.cost_ms.keys() == {"target", "draft"}
    checks = list(prove(runner, ["w1 w2 w3", "w4"], Plan(8, (1, 3), 300, stream_tokens=600)))
    assert [check.name for check in checks] == [
        *("integrity", "rows", "roll-back"),
        *("exact", "sampling", "seeded", "greedy", "stream"),
    ]
    assert all(check.passed for check in checks)


def test_a_gpu_is_given_back(root: Path) -> None:
    plans = TablePlans()
    on_gpu(root, plans).close()
    assert plans.closed == 1
    Runner.open(root, on="cpu").close()


def test_plans_without_a_draft_have_none(root: Path, tmp_path: Path) -> None:
    engines = replace(GPU_ENGINES, plans=GPU_ENGINES.plans[:2])
    alone = write_artifact(tmp_path / "alone", {FOLDER: engines})
    runner = on_gpu(alone)
    assert runner.roles == ("target",)
    assert list(runner.session("none").generate(PROMPT, Request(24))) == GREEDY
    for asked in (lambda: runner.session("model"), lambda: runner.engine("draft")):
        with pytest.raises(RequestError, match="has no draft model; use --draft ngram"):
            asked()


def test_a_host_that_cannot_run_the_cpu_engines_may_run_plans(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speccompile.runtime.host.platform.machine", lambda: "pdp11")
    assert on_gpu(root).on == FOLDER
    for on in ("auto", "cpu"):
        with pytest.raises(CompatibilityError, match="this host cannot run the artifact"):
            Runner.open(root, on=on)


def test_a_changed_plan_is_refused_before_a_gpu_is_looked_at(root: Path) -> None:
    (root / GPU_ENGINES.plans[0].plan).write_bytes(b"another plan")
    plans = TablePlans()
    with pytest.raises(ArtifactError, match=r"target-72\.plan"):
        on_gpu(root, plans)
    assert plans.opened == []
