"""On hosts whose GPUs are answers of the bindings, and on this one."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from types import SimpleNamespace
from typing import NoReturn

import pytest

from speccompile.runtime.files import FileEntry
from speccompile.runtime.gpus import (
    Driver,
    Gpu,
    find_gpus,
    gpu_needs,
    library_version,
    memory_needs,
)
from tests.cuda import ABI, PLANS, FakeGpu, Status, give_gpus, give_library, target_plan

L4 = Gpu(
    index=0,
    name="NVIDIA L4",
    uuid="GPU-00010203-0405-0607-0809-0a0b0c0d0e0f",
    architecture="sm89",
    memory_bytes=24_000_000_000,
    mig=False,
)
DRIVER = Driver("580.95.05", "13.1")


def reason() -> str:
    """Why there is no GPU, or not all: one line."""
    said = find_gpus().reason
    assert said is not None
    assert "\n" not in said
    return said


def test_this_host_has_gpus_or_a_reason() -> None:
    found = find_gpus()
    assert found.gpus or found.reason
    assert not found.gpus or found.driver


def test_gpus_are_described(monkeypatch: pytest.MonkeyPatch) -> None:
    other = FakeGpu("NVIDIA B200", (10, 0), 180_000_000_000, bytes(16))
    give_gpus(monkeypatch, FakeGpu(), other)
    found = find_gpus()
    assert found.driver == DRIVER
    assert found.reason is None
    assert found.gpus[0] == L4
    assert (found.gpus[1].index, found.gpus[1].architecture) == (1, "sm100")


def test_an_instance_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    give_gpus(monkeypatch, FakeGpu("NVIDIA A100-SXM4-40GB MIG 1g.5gb", (8, 0), 5_000_000_000))
    [gpu] = find_gpus().gpus
    assert gpu.mig
    assert gpu.uuid == L4.uuid.replace("GPU-", "MIG-")


def test_without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    assert find_gpus().driver is None
    assert reason() == "the CUDA packages are not installed; pip install 'speccompile[cuda]'"


def test_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(flags: int) -> NoReturn:
        raise RuntimeError('"cuda" is an NVIDIA driver library\nand can only be found so')

    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", SimpleNamespace(cuInit=lost))
    assert find_gpus().driver is None
    assert reason().startswith("no NVIDIA driver: libcuda.so.1 is not found; install it")


def test_a_driver_without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    give_gpus(monkeypatch)
    assert find_gpus().driver == DRIVER
    assert reason() == "the NVIDIA driver finds no GPU"


@pytest.mark.parametrize("call", ["", "cuDeviceGetCount", "cuDeviceTotalMem"])
def test_a_driver_that_fails_is_no_crash(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    start = Status.CUDA_SUCCESS if call else Status.CUDA_ERROR_SYSTEM_NOT_READY
    give_gpus(monkeypatch, FakeGpu(), start=start, fails=call)
    found = find_gpus()
    assert (found.driver, found.gpus) == (DRIVER, ())
    said = "system not yet initialized (CUDA_ERROR_SYSTEM_NOT_READY)"
    assert reason() == f"the NVIDIA driver fails: {said}"


@pytest.mark.parametrize("silent", ["absent", "refusing", "not found"])
def test_without_nvml_the_gpus_are_still_found(
    monkeypatch: pytest.MonkeyPatch, silent: str
) -> None:
    give_gpus(monkeypatch, FakeGpu())
    nvml = sys.modules["cuda.bindings.nvml"]

    def refuse() -> NoReturn:
        raise (RuntimeError if silent == "not found" else nvml.NvmlError)("no")

    monkeypatch.setattr(nvml, "init_v2", refuse)
    if silent == "absent":
        monkeypatch.setitem(sys.modules, "cuda.bindings.nvml", None)
    found = find_gpus()
    assert found.driver == Driver(None, "13.1")
    assert found.gpus == (L4,)


@pytest.mark.parametrize(
    ("chosen", "visible", "said"),
    [
        ("", 0, "'' hides 4 of 4 GPUs"),
        ("-1", 0, "'-1' hides 4 of 4 GPUs; its entry '-1' is not valid here, and ends the list"),
        ("7", 0, "'7' hides 4 of 4 GPUs; its entry '7' is not valid here, and ends the list"),
        ("GPU-ab", 0, "hides 4 of 4 GPUs; its entry 'GPU-ab' is not valid"),
        ("0,9, 1", 1, "hides 3 of 4 GPUs; its entry '9' is not valid here, and ends the list"),
        ("2,1", 2, "'2,1' hides 2 of 4 GPUs"),
    ],
)
def test_hidden_gpus(monkeypatch: pytest.MonkeyPatch, chosen: str, visible: int, said: str) -> None:
    give_gpus(monkeypatch, *[FakeGpu()] * visible, present=4)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert reason().startswith("CUDA_VISIBLE_DEVICES=")
    assert said in reason()
    assert ("entry" in reason()) == ("entry" in said)


@pytest.mark.parametrize(("chosen", "present"), [("0", 1), ("MIG-1,MIG-2", 1), (None, 3)])
def test_nothing_is_said_to_be_hidden_that_is_not(
    monkeypatch: pytest.MonkeyPatch, chosen: str | None, present: int
) -> None:
    give_gpus(monkeypatch, FakeGpu(), present=present)
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert find_gpus().reason is None


def unmet(gpu: Gpu | None = L4, driver: Driver | None = DRIVER) -> dict[str, tuple[str, str]]:
    needs = gpu_needs(PLANS, gpu, driver)
    assert [need.what for need in needs] == ["GPU", "driver's CUDA", "tensorrt_rtx", "plugin"]
    return {need.what: (need.need, need.have) for need in needs if not need.met}


def test_a_host_that_has_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    give_library(monkeypatch, "1.7.1.116")
    assert unmet() == {}
    assert unmet(driver=Driver(None, "13.0")) == {}


def test_each_lack_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    give_library(monkeypatch, "1.7.1.116")
    assert unmet(gpu=replace(L4, architecture="sm90")) == {"GPU": ("sm89", "sm90")}
    assert unmet(driver=Driver("1", "12.9")) == {"driver's CUDA": ("13.0 or newer", "12.9")}
    monkeypatch.setattr(sys.modules["speccompile.plugins.cubins"], "abi", lambda: "1" * 64)
    assert unmet() == {"plugin": (ABI[:12], "1" * 12)}


@pytest.mark.parametrize("version", ["1.7.1.117", "1.7.1", "1.8.0.1", None])
def test_the_library_must_be_the_very_version(
    monkeypatch: pytest.MonkeyPatch, version: str | None
) -> None:
    give_library(monkeypatch, version)
    assert unmet() == {"tensorrt_rtx": ("1.7.1.116", version or "none")}


def test_cuda_versions_are_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    give_library(monkeypatch, "1.7.1.116")
    engines = replace(PLANS, cuda="13.10")
    assert not gpu_needs(engines, L4, Driver(None, "13.9"))[1].met
    assert gpu_needs(engines, L4, Driver(None, "13.10"))[1].met


def test_a_host_without_a_gpu_lacks_two(monkeypatch: pytest.MonkeyPatch) -> None:
    give_library(monkeypatch, "1.7.1.116")
    assert unmet(None, None).keys() == {"GPU", "driver's CUDA"}


@pytest.mark.parametrize("distribution", ["tensorrt", "tensorrt_cu13"])
def test_a_library_by_any_of_its_distributions(
    monkeypatch: pytest.MonkeyPatch, distribution: str
) -> None:
    give_library(monkeypatch, "11.1.0.106", distribution)
    assert library_version("tensorrt") == "11.1.0.106"
    assert library_version("tensorrt_rtx") is None


def entries(sizes: dict[str, int]) -> dict[str, FileEntry]:
    return {path: FileEntry("0" * 64, size, "engine") for path, size in sizes.items()}


def gigabytes(needs: dict[int, str]) -> dict[int, float]:
    return {capacity: float(re.sub(" GB$", "", need)) for capacity, need in needs.items()}


def test_memory_is_of_plans_and_caches_by_capacity() -> None:
    # 2 (keys, values) x 2 bytes x 3 layers x 8 heads x 128 x 100,000 slots x 4 sequences: 4.9152 GB
    large = replace(target_plan(100_000, batch=4), layers=3, kv_heads=8, head_dim=128)
    small = replace(large, plan="small", capacity=1000)
    draft = replace(small, role="draft", plan="draft", layers=300)
    engines = replace(PLANS, plans=(large, draft, small))
    files = entries({large.plan: 10 * 10**9, "small": 2 * 10**9, "draft": 10**9})

    needs = memory_needs(engines, files, L4)
    found = gigabytes({capacity: need.need for capacity, need in needs.items()})
    # The draft's own cache of 1000 slots is 4.9152 GB too; the larger target has no other draft.
    assert found == {1000: 8.0, 100_000: 20.8}
    assert list(needs) == [1000, 100_000]
    assert all(need.met for need in needs.values())
    assert needs[1000].have == "24.0 GB"

    fitting = replace(L4, memory_bytes=8 * 10**9)
    assert [need.met for need in memory_needs(engines, files, fitting).values()] == [True, False]
    assert not any(need.met for need in memory_needs(engines, files, None).values())

    shared = replace(draft, shares_cache=True)
    needs = memory_needs(replace(engines, plans=(large, small, shared)), files, L4)
    found = gigabytes({capacity: need.need for capacity, need in needs.items()})
    assert found == {1000: 3.0, 100_000: 14.9}
