from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from speccompile.runtime.artifact import Artifact, open_artifact
from speccompile.runtime.errors import CompatibilityError, RequestError
from speccompile.runtime.gpus import Found, best_gpu, find_gpus, plan_pairs
from speccompile.runtime.marks import Subject, write_mark
from speccompile.runtime.placement import choose_placement, fitting_placements
from tests.cuda import FakeGpu, give_gpus, give_library
from tests.table_artifact import FOLDER, GPU_ENGINES, write_artifact

OTHER = "tensorrt-rtx-sm90"


@pytest.fixture
def artifact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Artifact:
    """With plans for two architectures, on a host that has the library, and no GPU yet."""
    monkeypatch.setenv("SPECCOMPILE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    give_library(monkeypatch, "1.7.1.116")
    engines = {FOLDER: GPU_ENGINES, OTHER: replace(GPU_ENGINES, architecture="sm90")}
    return open_artifact(write_artifact(tmp_path / "tiny", engines))


def mark(artifact: Artifact, *capacities: int, folder: str = FOLDER) -> None:
    found = find_gpus()
    gpu = best_gpu(artifact.manifest.gpus[folder], found)
    assert gpu
    subject = Subject.of(artifact.manifest, folder, gpu, found.driver)
    write_mark(subject, capacities or (40, 72), "2026-11-29", {})


def auto(artifact: Artifact, context: int = 64) -> tuple[str, int] | None:
    """Folder and capacity that are chosen."""
    placement = choose_placement(artifact, "auto", context)
    return (placement.folder, placement.pair.capacity) if placement else None


def test_plans_are_paired_by_capacity() -> None:
    pairs = plan_pairs(GPU_ENGINES)
    assert [pair.capacity for pair in pairs] == [40, 72]
    assert [[plan.capacity for plan in pair.plans] for pair in pairs] == [[40, 40], [72, 72]]
    alone = plan_pairs(replace(GPU_ENGINES, plans=GPU_ENGINES.plans[:2]))
    assert [pair.draft for pair in alone] == [None, None]


def test_auto_takes_plans_that_are_marked_and_no_others(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_gpus(monkeypatch, FakeGpu())
    assert auto(artifact) is None
    mark(artifact)
    assert auto(artifact) == (FOLDER, 72)
    assert choose_placement(artifact, "cpu", 64) is None


def test_a_mark_counts_for_its_own_gpu_driver_and_capacity(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_gpus(monkeypatch, FakeGpu())
    mark(artifact, 40)
    assert auto(artifact, 40) == (FOLDER, 40)
    assert auto(artifact, 41) is None
    monkeypatch.setattr(sys.modules["cuda.bindings.nvml"], "system_get_driver_version", lambda: "1")
    assert auto(artifact, 40) is None
    give_gpus(monkeypatch, FakeGpu(uuid=bytes(16)))
    assert auto(artifact, 40) is None
    give_gpus(monkeypatch, FakeGpu(uuid=bytes(16)), FakeGpu(memory=25_000_000_000))
    assert auto(artifact, 40) == (FOLDER, 40)


def test_auto_goes_on_where_plans_cannot_run(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_gpus(monkeypatch, FakeGpu(), FakeGpu("NVIDIA H100", (9, 0), uuid=bytes(16)))
    mark(artifact, folder=OTHER)
    assert auto(artifact) == (OTHER, 72)
    mark(artifact)
    assert auto(artifact) == (FOLDER, 72)  # the first by name
    give_library(monkeypatch, "1.7.1.117")
    assert auto(artifact) is None


def test_the_smallest_plans_that_are_enough_are_chosen(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    give_gpus(monkeypatch, FakeGpu())
    for context, capacity in ((1, 40), (40, 40), (41, 72), (64, 72)):
        placement = choose_placement(artifact, FOLDER, context)
        assert placement
        assert placement.pair.capacity == capacity
        assert placement.gpu.name == "NVIDIA L4"
    with pytest.raises(RequestError, match="no plan of tensorrt-rtx-sm89 has room for 73 tokens"):
        choose_placement(artifact, FOLDER, 73)


def test_an_unknown_folder_is_answered_with_the_others(artifact: Artifact) -> None:
    said = f"has no engines 'sm89'; choose one of auto, {FOLDER}, {OTHER}, cpu$"
    with pytest.raises(RequestError, match=said):
        choose_placement(artifact, "sm89", 64)


def test_a_folder_that_cannot_run_says_need_and_have(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusal(folder: str = FOLDER) -> str:
        with pytest.raises(CompatibilityError) as refused:
            choose_placement(artifact, folder, 64)
        assert "\n" not in str(refused.value)
        return str(refused.value)

    assert refusal().endswith(
        f"{FOLDER} cannot run here: it needs GPU sm89, here is none (the CUDA packages are not "
        "installed; pip install 'speccompile[cuda]'); it needs driver's CUDA 13.0 or newer, here "
        "is none. Choose cpu, or build it for here"
    )
    give_gpus(monkeypatch, FakeGpu())
    assert "it needs GPU sm90, here is sm89. Choose" in refusal(OTHER)
    give_gpus(monkeypatch, FakeGpu(memory=100))
    assert "it needs memory for 72 slots 0.0 MB, here is 0.0 MB" in refusal()
    give_gpus(monkeypatch, FakeGpu())
    give_library(monkeypatch, None)
    assert "it needs tensorrt_rtx 1.7.1.116, here is none. Choose" in refusal()


def test_all_plans_that_fit_are_to_be_tested(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    def capacities(found: Found) -> list[int]:
        return [each.pair.capacity for each in fitting_placements(artifact, FOLDER, found)]

    give_gpus(monkeypatch, FakeGpu())
    assert capacities(find_gpus()) == [40, 72]
    sizes = [artifact.manifest.files[plan.plan].size for plan in plan_pairs(GPU_ENGINES)[0].plans]
    give_gpus(monkeypatch, FakeGpu(memory=sum(sizes) + 4 * 40))
    assert capacities(find_gpus()) == [40]
    give_gpus(monkeypatch)
    with pytest.raises(CompatibilityError, match="the NVIDIA driver finds no GPU"):
        capacities(find_gpus())


@pytest.mark.parametrize("on", ["auto", "cpu"])
def test_gpus_are_not_looked_for_in_vain(
    artifact: Artifact, on: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked() -> Found:
        raise AssertionError

    monkeypatch.setattr("speccompile.runtime.placement.find_gpus", looked)
    assert choose_placement(artifact, on, 64) is None


def test_the_archive_of_an_artifact_has_no_kernels_to_hash(
    artifact: Artifact, monkeypatch: pytest.MonkeyPatch
) -> None:
    def abi() -> str:
        raise NotADirectoryError("MultiplexedPath only supports directories")

    monkeypatch.setattr(sys.modules["speccompile.plugins.cubins"], "abi", abi)
    give_gpus(monkeypatch, FakeGpu())
    assert choose_placement(artifact, FOLDER, 64)
