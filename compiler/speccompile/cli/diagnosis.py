"""What this machine has for running and building, and which engines of an artifact run on it."""

from __future__ import annotations

import platform
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module, metadata
from pathlib import Path

from speccompile.cli.inspection import Inspection
from speccompile.runtime import host
from speccompile.runtime.gpus import (
    Found,
    Gpu,
    best_gpu,
    find_gpus,
    gpu_needs,
    library_version,
    memory_needs,
)
from speccompile.runtime.host import Host, Need
from speccompile.runtime.marks import Subject, find_mark
from speccompile.runtime.user_cache import default_cache

__all__ = [
    "EXTRAS",
    "Engine",
    "Library",
    "Machine",
    "Package",
    "diagnose",
    "engines_here",
]

EXTRAS = ("", "compiler", "cuda")
"""Of our distribution, "" being the plain one; [tensorrt-rtx] adds nothing but its library."""

# What makes engines fast, or decides in which arithmetic they compute; of x86, then of Arm.
_INSTRUCTIONS = (
    *("avx2", "fma", "f16c", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16"),
    *("avx512_fp16", "amx_int8", "amx_bf16", "asimd", "asimddp", "i8mm", "bf16", "sve"),
)
_LIBRARIES = {"tensorrt": "cuda", "tensorrt_rtx": "tensorrt-rtx"}
"""The extra that brings each."""


@dataclass(frozen=True)
class Package:
    """One that our extra `extra` asks for; `version` is None where it is not installed."""

    name: str
    version: str | None
    extra: str


@dataclass(frozen=True)
class Library(Package):
    """TensorRT in one of its forms, and the `architectures` that it can build plans for here."""

    architectures: tuple[str, ...]


@dataclass(frozen=True)
class Machine:
    """`instructions` is None where the kernel does not tell; `free_bytes` is the disk's."""

    host: Host
    instructions: tuple[str, ...] | None
    python: str
    packages: tuple[Package, ...]
    libraries: tuple[Library, ...]
    found: Found
    cache: Path
    free_bytes: int


@dataclass(frozen=True)
class Engine:
    """The CPU engines of an artifact ("cpu"), or one folder of plans, on `gpu` where there is one.

    It can run where `lacks`, which names needs, is empty. On a GPU it was `verified` at some date
    and time; of a self-test that ran now there are what it `said`, its `figures`, and whether it
    `failed`.
    """

    name: str
    gpu: Gpu | None
    needs: tuple[Need, ...]
    lacks: tuple[str, ...]
    verified: str | None = None
    failed: bool = False
    said: str | None = None
    figures: Mapping[str, object] | None = None

    @property
    def runs(self) -> bool:
        return not self.lacks and not self.failed


def diagnose() -> Machine:
    """The facts of this machine; nothing is opened on a GPU."""
    here, flags, found = host.describe(), host.cpu_flags(), find_gpus()
    known = None if flags is None else tuple(flag for flag in _INSTRUCTIONS if flag in flags)
    cache = default_cache().absolute()
    return Machine(
        host=here,
        instructions=known,
        python=platform.python_version(),
        packages=tuple(_packages(here)),
        libraries=tuple(_library(name, extra, found) for name, extra in _LIBRARIES.items()),
        found=found,
        cache=cache,
        free_bytes=_free_bytes(cache),
    )


def engines_here(report: Inspection, found: Found) -> list[Engine]:
    """Those of the artifact, for the CPU first, and whether each has here what it needs."""
    engines = [Engine("cpu", None, tuple(report.needs), _unmet(report.needs))]
    for name, plans in sorted(report.manifest.gpus.items()):
        gpu = best_gpu(plans, found)
        needs = gpu_needs(plans, gpu, found.driver)
        memory = list(memory_needs(plans, report.manifest.files, gpu).values())
        lacks = (*_unmet(needs), *(["its files"] if name in report.absent else []))
        if gpu and not any(need.met for need in memory):  # the plans of one capacity are enough
            lacks = (*lacks, "memory")
        mark = gpu and find_mark(Subject.of(report.manifest, name, gpu, found.driver))
        verified = mark.date if mark else None
        engines.append(Engine(name, gpu, (*needs, *memory), lacks, verified))
    return engines


def _unmet(needs: Iterable[Need]) -> tuple[str, ...]:
    return tuple(need.what for need in needs if not need.met)


def _packages(here: Host) -> Iterator[Package]:
    """What our own distribution requires, for each of `EXTRAS`."""
    yield Package("speccompile", _version("speccompile"), "")
    for line in metadata.requires("speccompile") or ():
        name = re.split(r"[^\w.-]", line, maxsplit=1)[0]
        marked = re.search(r"extra == ['\"]([\w-]+)", line)
        extra = marked[1] if marked else ""
        if extra in EXTRAS and name not in _LIBRARIES:
            yield Package(name, here.packages.get(name) or _version(name), extra)


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _library(name: str, extra: str, found: Found) -> Library:
    version = library_version(name)
    return Library(name, version, extra, _architectures(name, found) if version else ())


def _architectures(name: str, found: Found) -> tuple[str, ...]:
    """TensorRT builds on a GPU and for that one; TensorRT-RTX builds anywhere for what it knows."""
    if name == "tensorrt":
        return tuple(sorted({gpu.architecture for gpu in found.gpus}))
    try:
        known: dict[str, object] = import_module(name).ComputeCapability.__members__
    except (ImportError, OSError):  # installed, but not whole
        return ()
    return tuple(entry.lower() for entry in known if re.fullmatch("SM[0-9]+", entry))


def _free_bytes(folder: Path) -> int:
    """On the disk that has `folder`, or will have it."""
    for place in (folder, *folder.parents):
        with suppress(OSError):  # it does not exist, or is not ours to look at
            return shutil.disk_usage(place).free
    return 0
