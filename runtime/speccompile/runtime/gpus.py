"""The GPUs that this process may use, and whether they have what an artifact's plans need.

CUDA itself is asked, and it applies CUDA_VISIBLE_DEVICES: how its indices count, which abbreviated
UUIDs it takes and how many MIG instances it shows differ from driver to driver.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module, metadata
from types import ModuleType
from typing import Any, TypeVar
from uuid import UUID

from speccompile.runtime.files import FileEntry
from speccompile.runtime.host import Need
from speccompile.runtime.manifest import GpuEngines, PlanInfo

__all__ = [
    "Driver",
    "Found",
    "Gpu",
    "PlanPair",
    "best_gpu",
    "find_gpus",
    "gpu_needs",
    "library_version",
    "memory_needs",
    "plan_pairs",
]

# Distributions that bring each library, the usual one first.
_PROVIDERS = {
    "tensorrt": ("tensorrt", "tensorrt_cu13", "tensorrt_cu12"),
    "tensorrt_rtx": ("tensorrt_rtx_cu13", "tensorrt_rtx", "tensorrt_rtx_cu12"),
}
_CAPABILITY = (
    "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR",
    "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR",
)
_NONE = "none"

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Gpu:
    """A GPU, or a `mig` instance of one, by its CUDA `index`; `architecture` is such as "sm89"."""

    index: int
    name: str
    uuid: str
    architecture: str
    memory_bytes: int
    mig: bool


@dataclass(frozen=True)
class Driver:
    """Its own `version`, such as "580.95.05" (None if not known), and the newest CUDA it runs."""

    version: str | None
    cuda: str


@dataclass(frozen=True)
class PlanPair:
    """The plans that run together: a target's, and that of the draft with it, if there is one."""

    target: PlanInfo
    draft: PlanInfo | None

    @property
    def plans(self) -> tuple[PlanInfo, ...]:
        return (self.target, self.draft) if self.draft else (self.target,)

    @property
    def capacity(self) -> int:
        """Cache slots of the target."""
        return self.target.capacity


@dataclass(frozen=True)
class Found:
    """`reason` says in one line why there is no GPU, or why CUDA shows fewer than there are."""

    driver: Driver | None
    gpus: tuple[Gpu, ...]
    reason: str | None


def find_gpus() -> Found:
    """The driver and the GPUs of this host; no GPU gets a context.

    This initializes CUDA, which a process forked from this one then cannot use.
    """
    try:
        cuda = import_module("cuda.bindings.driver")
    except ModuleNotFoundError:
        install = "pip install 'speccompile[cuda]'"
        return Found(None, (), f"the CUDA packages are not installed; {install}")
    try:
        (status,) = cuda.cuInit(0)
    except RuntimeError:  # of cuda.pathfinder
        lost = "no NVIDIA driver: libcuda.so.1 is not found"
        return Found(None, (), f"{lost}; install it, or start the container with --gpus all")
    version, present = _ask_nvml()
    here = Driver(version, _dotted(_value(cuda, cuda.cuDriverGetVersion())))
    try:
        gpus = _visible(cuda, status)
    except RuntimeError as error:
        return Found(here, (), f"the NVIDIA driver fails: {error}")
    reason = _hidden(len(gpus), present) or (None if gpus else "the NVIDIA driver finds no GPU")
    return Found(here, gpus, reason)


def best_gpu(engines: GpuEngines, found: Found) -> Gpu | None:
    """The largest GPU of the right architecture, or else the largest."""
    return max(
        found.gpus,
        key=lambda gpu: (gpu.architecture == engines.architecture, gpu.memory_bytes),
        default=None,
    )


def plan_pairs(engines: GpuEngines) -> list[PlanPair]:
    """One for each plan of the target, by capacity.

    A draft in the target's cache is of the same capacity; one with its own may be shorter.
    """
    by_capacity = sorted(engines.plans, key=lambda plan: plan.capacity)
    pairs: list[PlanPair] = []
    for target in (plan for plan in by_capacity if plan.role == "target"):
        drafts = [plan for plan in by_capacity if plan.role == "draft" and _suits(plan, target)]
        pairs.append(PlanPair(target, drafts[-1] if drafts else None))
    return pairs


def gpu_needs(engines: GpuEngines, gpu: Gpu | None, driver: Driver | None) -> list[Need]:
    """What plans need of a host besides memory, of which `memory_needs` tells."""
    architecture = gpu.architecture if gpu else _NONE
    cuda = driver.cuda if driver else _NONE
    library, plugin = library_version(engines.library) or _NONE, _plugin(engines)
    return [
        Need("GPU", engines.architecture, architecture, architecture == engines.architecture),
        Need(
            "driver's CUDA",
            f"{engines.cuda} or newer",
            cuda,
            driver is not None and _numbers(cuda) >= _numbers(engines.cuda),
        ),
        Need(engines.library, engines.library_version, library, library == engines.library_version),
        Need("plugin", engines.plugin[:12], plugin[:12], plugin == engines.plugin),
    ]


def memory_needs(
    engines: GpuEngines, files: Mapping[str, FileEntry], gpu: Gpu | None
) -> dict[int, Need]:
    """By the cache capacity of the target: what its plans and caches take at least."""
    needs: dict[int, Need] = {}
    have = gpu.memory_bytes if gpu else None
    for pair in plan_pairs(engines):
        size = sum(files[plan.plan].size + _cache_bytes(plan) for plan in pair.plans)
        needs[pair.capacity] = Need(
            f"memory for {pair.capacity} slots",
            _readable(size),
            _NONE if have is None else _readable(have),
            have is not None and have >= size,
        )
    return needs


def library_version(library: str) -> str | None:
    """The installed version of "tensorrt" or "tensorrt_rtx", which is not imported."""
    for distribution in _PROVIDERS[library]:
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def _ask_nvml() -> tuple[str | None, int | None]:
    """The driver's version and how many GPUs it has, hidden ones too; None where NVML is silent."""
    try:
        nvml = import_module("cuda.bindings.nvml")
    except ModuleNotFoundError:  # it came with 13.1
        return None, None
    try:
        nvml.init_v2()
        return nvml.system_get_driver_version(), nvml.device_get_count_v2()
    except (RuntimeError, nvml.NvmlError):  # the former where there is no library
        return None, None


def _visible(cuda: ModuleType, status: int) -> tuple[Gpu, ...]:
    """The GPUs of a driver that began with `status`; RuntimeError carries what it refuses."""
    if status == cuda.CUresult.CUDA_ERROR_NO_DEVICE:
        return ()
    _value(cuda, (status, None))
    return tuple(_gpu(cuda, index) for index in range(_value(cuda, cuda.cuDeviceGetCount())))


def _gpu(cuda: ModuleType, index: int) -> Gpu:
    device = _value(cuda, cuda.cuDeviceGet(index))
    name: str = _value(cuda, cuda.cuDeviceGetName(256, device)).split(b"\0")[0].decode()
    mig = " MIG " in name
    capability = [
        _value(cuda, cuda.cuDeviceGetAttribute(getattr(cuda.CUdevice_attribute, part), device))
        for part in _CAPABILITY
    ]
    uuid = UUID(bytes=bytes(_value(cuda, cuda.cuDeviceGetUuid(device)).bytes))
    return Gpu(
        index=index,
        name=name,
        uuid=f"{'MIG' if mig else 'GPU'}-{uuid}",
        architecture="sm" + "".join(map(str, capability)),
        memory_bytes=_value(cuda, cuda.cuDeviceTotalMem(device)),
        mig=mig,
    )


def _value(cuda: ModuleType, answer: tuple[Any, _Value]) -> _Value:
    """What a call of the driver gave back behind its status."""
    status, value = answer
    if status != cuda.CUresult.CUDA_SUCCESS:
        said: bytes = cuda.cuGetErrorString(status)[1]
        raise RuntimeError(f"{said.decode()} ({status.name})")
    return value


def _hidden(visible: int, present: int | None) -> str | None:
    """How CUDA_VISIBLE_DEVICES hides GPUs, of which there are `present`."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None or present is None or visible >= present:
        return None
    said = f"CUDA_VISIBLE_DEVICES={chosen!r} hides {present - visible} of {present} GPUs"
    entries = [entry.strip() for entry in chosen.split(",")]
    if chosen.strip() and visible < len(entries):
        said += f"; its entry {entries[visible]!r} is not valid here, and ends the list"
    return said


def _plugin(engines: GpuEngines) -> str:
    """The hash of what our own kernels compute."""
    # Late: a host that runs no plans need not hash the kernels' sources.
    from speccompile.plugins.cubins import abi

    try:
        return abi()
    except NotADirectoryError:  # in the archive of an artifact, which was built with its plans
        return engines.plugin


def _suits(draft: PlanInfo, target: PlanInfo) -> bool:
    if draft.shares_cache:
        return draft.capacity == target.capacity
    return draft.capacity <= target.capacity


def _cache_bytes(plan: PlanInfo) -> int:
    """Of its keys and values in fp16; a draft in the target's cache has none."""
    if plan.shares_cache:
        return 0
    return 2 * 2 * plan.batch * plan.layers * plan.kv_heads * plan.capacity * plan.head_dim


def _dotted(version: int) -> str:
    """Of CUDA's 13010: 13.1."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall("[0-9]+", version)))


def _readable(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e8 else f"{size / 1e6:.1f} MB"
