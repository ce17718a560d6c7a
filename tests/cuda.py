"""GPUs that are not there: what the Python bindings of CUDA and NVML answer where they are."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from importlib import metadata
from types import SimpleNamespace

import pytest

from speccompile.runtime.manifest import GpuEngines, PlanInfo

__all__ = ["ABI", "PLANS", "FakeGpu", "Status", "give_gpus", "give_library", "target_plan"]

Answer = tuple["Status", object]

ABI = "c0ffee" * 10 + "abcd"


class Status(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_SYSTEM_NOT_READY = 802


class Attribute(IntEnum):
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76


class NvmlError(Exception):
    pass


@dataclass(frozen=True)
class FakeGpu:
    name: str = "NVIDIA L4"
    capability: tuple[int, int] = (8, 9)
    memory: int = 24_000_000_000
    uuid: bytes = bytes(range(16))


class FakeDriver:
    """`cuda.bindings.driver`: each call gives its status, and then a value."""

    CUresult = Status
    CUdevice_attribute = Attribute

    def __init__(self, gpus: Sequence[FakeGpu], start: Status, fails: str) -> None:
        self._gpus, self._start, self._fails = gpus, start, fails

    def cuInit(self, flags: int) -> tuple[Status]:
        assert flags == 0
        return (self._start,)

    def cuDriverGetVersion(self) -> Answer:
        return self._answer("cuDriverGetVersion", 13010)

    def cuGetErrorString(self, status: Status) -> Answer:
        assert status == Status.CUDA_ERROR_SYSTEM_NOT_READY
        return self._answer("cuGetErrorString", b"system not yet initialized")

    def cuDeviceGetCount(self) -> Answer:
        return self._answer("cuDeviceGetCount", len(self._gpus))

    def cuDeviceGet(self, index: int) -> Answer:
        return self._answer("cuDeviceGet", index)

    def cuDeviceGetName(self, length: int, device: int) -> Answer:
        return self._answer(
            "cuDeviceGetName", self._gpus[device].name.encode().ljust(length, b"\0")
        )

    def cuDeviceGetUuid(self, device: int) -> Answer:
        return self._answer("cuDeviceGetUuid", SimpleNamespace(bytes=self._gpus[device].uuid))

    def cuDeviceTotalMem(self, device: int) -> Answer:
        return self._answer("cuDeviceTotalMem", self._gpus[device].memory)

    def cuDeviceGetAttribute(self, kind: Attribute, device: int) -> Answer:
        part = kind - Attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        return self._answer("cuDeviceGetAttribute", self._gpus[device].capability[part])

    def _answer(self, call: str, value: object) -> Answer:
        if call == self._fails:
            return Status.CUDA_ERROR_SYSTEM_NOT_READY, None
        return Status.CUDA_SUCCESS, value


def give_gpus(
    monkeypatch: pytest.MonkeyPatch,
    *gpus: FakeGpu,
    start: Status | None = None,
    fails: str = "",
    present: int | None = None,
) -> None:
    """Let this host have a driver that shows `gpus` of the `present` ones (all of them if None).

    CUDA starts with `start`; the call named `fails` does not succeed.
    """
    status = start or (Status.CUDA_SUCCESS if gpus else Status.CUDA_ERROR_NO_DEVICE)
    cuda = FakeDriver(gpus, status, fails)
    nvml = SimpleNamespace(
        NvmlError=NvmlError,
        init_v2=lambda: None,
        system_get_driver_version=lambda: "580.95.05",
        device_get_count_v2=lambda: len(gpus) if present is None else present,
    )
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", cuda)
    monkeypatch.setitem(sys.modules, "cuda.bindings.nvml", nvml)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def give_library(
    monkeypatch: pytest.MonkeyPatch, version: str | None, distribution: str = "tensorrt_rtx_cu13"
) -> None:
    """Let TensorRT be installed as `distribution` alone, and our kernels have `ABI`."""
    installed = metadata.version

    def answer(name: str) -> str:
        if not name.startswith("tensorrt"):
            return installed(name)
        if version is None or name != distribution:
            raise metadata.PackageNotFoundError(name)
        return version

    monkeypatch.setattr(metadata, "version", answer)
    monkeypatch.setitem(sys.modules, "speccompile.plugins.cubins", SimpleNamespace(abi=lambda: ABI))


def target_plan(capacity: int, batch: int = 1) -> PlanInfo:
    """Its caches take 64 bytes a slot and sequence."""
    return PlanInfo(
        *("target", f"engines/gpu/target-{capacity}.plan", "fp16", "traversal"),
        *(2, 1, 2, 8, capacity, 512, batch, 9),
        shares_cache=False,
    )


PLANS = GpuEngines(
    library="tensorrt_rtx",
    library_version="1.7.1.116",
    architecture="sm89",
    cuda="13.0",
    kernels="engines/gpu/kernels.cubin",
    plugin=ABI,
    plans=(target_plan(64), target_plan(1024)),
)
