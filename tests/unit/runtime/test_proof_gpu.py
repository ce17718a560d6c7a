"""The self-test passes for plans that are sound, and each defect is found by the check for it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from speccompile.plugins.launches import Launch
from speccompile.plugins.schema import Rule
from speccompile.runtime.artifact import Artifact, open_artifact
from speccompile.runtime.errors import CompatibilityError, EngineError
from speccompile.runtime.gpus import find_gpus
from speccompile.runtime.placement import fitting_placements
from speccompile.runtime.proof.closeness import closeness
from speccompile.runtime.proof.gpu import SelfTest, self_test
from speccompile.runtime.proof.kernels import check_kernels
from speccompile.runtime.proof.trees import random_trees
from tests.cuda import FakeGpu, give_gpus, give_library
from tests.host_device import HostDevice
from tests.kernels import host_kernels
from tests.round_kernels import int64s
from tests.table_artifact import (
    DRAFT,
    FOLDER,
    GPU_ENGINES,
    TARGET,
    TablePlans,
    give_tables,
    write_artifact,
)
from tests.table_model import half
from tests.unit.runtime.tables import VOCABULARY
from tests.verify_kernels import run_any_launch

CHECKS = ["kernels", "target logits", "draft logits", "rows", "roll-back", "greedy", "rounds"]

Test = Callable[..., SelfTest]


@pytest.fixture
def artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Artifact:
    give_library(monkeypatch, "1.7.1.116")
    give_gpus(monkeypatch, FakeGpu())
    give_tables(monkeypatch)
    return open_artifact(write_artifact(tmp_path / "tiny"))


def run(artifact: Artifact, plans: TablePlans) -> SelfTest:
    """The test of the plans of 72 slots."""
    placements = fitting_placements(artifact, FOLDER, find_gpus())
    chosen = [each for each in placements if each.pair.capacity == 72]
    result = self_test(artifact, chosen, open_plans=plans)
    assert plans.closed == len(plans.opened) == 1
    json.dumps(result.figures, allow_nan=False)
    return result


def failed(artifact: Artifact, plans: TablePlans) -> list[str]:
    """The checks that fail, and the refusal in one line that names the first."""
    result = run(artifact, plans)
    [checks] = result.checks.values()
    names = [check.name for check in checks if not check.passed]
    assert result.passed is not bool(names)
    if names:
        assert result.refusal
        assert result.refusal.startswith(f"plans of 72 slots, {names[0]}: ")
        assert "\n" not in result.refusal
    return names


def test_sound_plans_of_every_capacity_pass(artifact: Artifact) -> None:
    placements = fitting_placements(artifact, FOLDER, find_gpus())
    doing: list[str] = []
    plans = TablePlans()

    def progress(name: str, done: int, total: int) -> None:
        assert 0 <= done < total
        doing.append(name)

    result = self_test(artifact, placements, open_plans=plans, progress=progress)
    assert result.passed
    assert result.refusal is None
    assert {
        capacity: [check.name for check in checks] for capacity, checks in result.checks.items()
    } == {40: CHECKS, 72: CHECKS}
    assert plans.closed == 2
    assert list(dict.fromkeys(doing))[:3] == [
        "the CPU's engines",
        "opening the plans",
        "kernels",
    ]
    assert list(result.figures) == ["40", "72"]
    # Every round of the last check was a graph.
    for device in plans.devices:
        assert len(device.kinds("capture")) >= 3
        assert len(device.kinds("replay")) > 20


def test_rounding_is_no_fault(artifact: Artifact) -> None:
    plans = TablePlans(noise=0.03)
    result = run(artifact, plans)
    assert result.refusal is None
    [checks] = result.checks.values()
    greedy = checks[CHECKS.index("greedy")].details
    assert greedy["tolerance"] == pytest.approx(4 * 0.03, rel=0.2)


def test_plans_without_a_draft_are_tested_with_n_grams(artifact: Artifact, tmp_path: Path) -> None:
    engines = replace(GPU_ENGINES, plans=GPU_ENGINES.plans[:1])
    alone = open_artifact(write_artifact(tmp_path / "alone", {FOLDER: engines}))
    result = run(alone, TablePlans())
    assert result.passed
    [checks] = result.checks.values()
    assert [check.name for check in checks] == [name for name in CHECKS if name != "draft logits"]
    assert checks[-2].details["drafts"] == ["ngram"]


def test_logits_that_are_off_are_found(artifact: Artifact) -> None:
    assert failed(artifact, TablePlans(target=half(TARGET * np.float32(1.1)))) == ["target logits"]
    other = half(DRAFT[:, :, ::-1])
    assert failed(artifact, TablePlans(draft=other)) == ["draft logits"]


def test_an_int8_draft_may_be_as_far_as_int8_is(artifact: Artifact) -> None:
    rng = np.random.default_rng(3)
    rounded = half(DRAFT + rng.normal(0, 0.1, DRAFT.shape).astype(np.float32))
    assert failed(artifact, TablePlans(draft=rounded)) == []
    noise = rng.normal(0, 0.1, TARGET.shape).astype(np.float32)
    assert "target logits" in failed(artifact, TablePlans(target=half(TARGET + noise)))


def wrong_verdicts(launch: Launch, rule: Rule = "traversal") -> None:
    """Now and then the kernel gives another token."""
    run_any_launch(launch)
    values = [argument.value or 0 for argument in launch.arguments]
    if launch.kernel == "walk_float16" and values[-1] == ["greedy", "walk", "token", rule].index(
        rule
    ):
        following = int64s(values[10], launch.grid[0])
        following[3:4] = (following[3:4] + 1) % VOCABULARY


def test_a_wrong_verify_kernel_is_found(artifact: Artifact) -> None:
    assert failed(artifact, TablePlans(run=wrong_verdicts)) == ["kernels"]


def wrong_masks(launch: Launch) -> None:
    run_any_launch(launch)
    if launch.kernel == "tree_mask":
        values = [argument.value or 0 for argument in launch.arguments]
        int64s(values[2], launch.grid[1])[0] += 1


def test_a_wrong_mask_kernel_is_found(artifact: Artifact) -> None:
    assert failed(artifact, TablePlans(run=wrong_masks)) == ["kernels"]


def wrong_commits(launch: Launch) -> None:
    """A round of several rows commits another token than the verdict says."""
    if launch.kernel == "commit":
        values = [argument.value or 0 for argument in launch.arguments]
        _, count, following, emitted = values[:4]
        nodes, given_one = values[11], 2 <= values[11] <= 5
        if given_one:
            token = (int64s(following, 1)[0] + 1) % VOCABULARY
            int64s(following, 1)[0] = token
            int64s(emitted, nodes)[int64s(count, 1)[0] - 1] = token
    run_any_launch(launch)


def test_speculation_that_changes_the_text_is_found(artifact: Artifact) -> None:
    result = run(artifact, TablePlans(run=wrong_commits))
    assert result.refusal
    assert ", greedy: " in result.refusal
    assert "logit margin" in result.refusal


def test_rows_that_are_noisy_beyond_rounding_are_found(artifact: Artifact) -> None:
    names = failed(artifact, TablePlans(noise=0.5))
    assert names[0] == "target logits"
    assert "rows" in names


def test_logits_that_are_not_finite_are_found(artifact: Artifact) -> None:
    broken = half(TARGET)
    broken[:, 3] = np.nan
    result = run(artifact, TablePlans(target=broken))
    assert result.refusal
    assert "relative error not finite" in result.refusal
    [checks] = result.checks.values()
    assert checks[-1].name == "engine"  # where the round ended
    assert "not finite" in checks[-1].summary


def test_plans_that_do_not_open_fail_in_one_line(artifact: Artifact) -> None:
    def refuse(*_: object) -> None:
        raise EngineError("engines/target.plan: tensorrt_rtx does not open this plan")

    placements = fitting_placements(artifact, FOLDER, find_gpus())[:1]
    result = self_test(artifact, placements, open_plans=refuse)  # type: ignore[arg-type]
    said = "plans of 40 slots, engine: engines/target.plan: tensorrt_rtx does not open this plan"
    assert result.refusal == said


def test_without_engines_for_the_cpu_there_is_nothing_to_compare_with(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    placements = fitting_placements(artifact, FOLDER, find_gpus())
    monkeypatch.setattr("speccompile.runtime.host.platform.machine", lambda: "pdp11")
    plans = TablePlans()
    with pytest.raises(CompatibilityError, match="this host cannot run the artifact"):
        self_test(artifact, placements, open_plans=plans)
    assert plans.opened == []


# the kernels alone


@pytest.mark.parametrize("logits_type", ["float16", "float32", "bfloat16"])
def test_the_compiled_kernels_are_the_oracle_s(logits_type: str) -> None:
    device = HostDevice(eager=False, run=host_kernels().launch)
    check = check_kernels(device, ("traversal", "walk"), logits_type, 131)  # type: ignore[arg-type]
    assert check.passed, check.summary
    assert check.details["trees"] == check.details["masks"] == 2 * (24 * 8 + 2 * 2)


def test_the_trees_ask_the_kernels_all_there_is_to_ask() -> None:
    """Rejected and accepted proposals, whole paths, prompts, rows that are invalid, both laws."""
    lengths: set[int] = set()
    tokens: list[int] = []
    for seed in range(24):
        trees = random_trees(seed, 8, 9, 61)
        found = trees.verdicts("traversal")
        lengths |= set((found["count"] - trees.given).tolist())
        tokens += found["next_token"].tolist()
    assert {0, 1, 2, 3, 4} <= lengths
    assert -1 in tokens
    assert len(set(tokens)) > 40


@pytest.mark.parametrize("shift", [0.0, 0.5])
def test_closeness_of_logits(shift: float) -> None:
    logits = np.random.default_rng(0).normal(size=(4, 9)).astype(np.float32)
    found = closeness(logits, logits + np.float32(shift))
    assert found.relative_error == pytest.approx(shift / np.abs(logits).max(), abs=1e-6)
    assert found.kl_divergence == pytest.approx(0.0, abs=1e-7)  # which a shift does not change
    assert found.top1_agreement == 1.0
    assert (found.refusal("fp16") is None) is (shift == 0.0)
    assert found.refusal("int8") is None
