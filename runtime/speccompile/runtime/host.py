"""What this host is, and whether it has what an artifact needs; no engine is imported to tell."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from speccompile.runtime.errors import CompatibilityError
from speccompile.runtime.manifest import Requirements

__all__ = ["PACKAGES", "Host", "Need", "check", "cpu_flags", "describe"]

PACKAGES = ("numpy", "onnxruntime", "openvino", "tokenizers")

# Distributions that provide the same module, the usual one first.
_PROVIDERS = {"onnxruntime": ("onnxruntime", "onnxruntime-gpu")}
# OpenVINO's operators may change in a minor release; the others only gain.
_HELD_TO_MINOR = frozenset({"openvino"})
_CPUINFO = Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Host:
    """`cores` are those this process may use; `memory_bytes` is None where it is not known.

    `packages` maps those of `PACKAGES` that are installed to their versions.
    """

    cpu: str
    cores: int
    architecture: str
    memory_bytes: int | None
    packages: dict[str, str]


@dataclass(frozen=True)
class Need:
    """One requirement of an artifact, and what the host has for it."""

    what: str
    need: str
    have: str
    met: bool


def describe() -> Host:
    """The facts of this host, for reports and for the `requires` of an artifact built on it."""
    installed = {name: version for name in PACKAGES if (version := _installed(name))}
    return Host(
        cpu=_cpuinfo("model name") or platform.processor() or "unknown",
        cores=_cores(),
        architecture=platform.machine(),
        memory_bytes=_memory_bytes(),
        packages=installed,
    )


def check(requires: Requirements) -> None:
    """Raise CompatibilityError listing everything that `requires` names and this host lacks."""
    lacks = [*_processor_lacks(requires), *_package_lacks(requires)]
    if lacks:
        raise CompatibilityError(
            f"this host cannot run the artifact: {'; '.join(lacks)}. "
            "Install what is named, or build the artifact for this host"
        )


def cpu_flags() -> frozenset[str] | None:
    """The instruction sets that the kernel reports, in its spelling; None where it does not."""
    flags = _cpuinfo("flags") or _cpuinfo("Features")
    return frozenset(flags.split()) if flags else None


def _processor_lacks(requires: Requirements) -> list[str]:
    lacks: list[str] = []
    if requires.architecture != (have := platform.machine()):
        lacks.append(f"it needs the architecture {requires.architecture}, here is {have}")
    flags = cpu_flags()
    if flags is not None and (missing := sorted(set(requires.cpu_flags) - flags)):
        cpu = _cpuinfo("model name") or "this CPU"
        lacks.append(f"it needs the CPU flags {', '.join(missing)}, {cpu} has none of these")
    return lacks


def _package_lacks(requires: Requirements) -> list[str]:
    lacks: list[str] = []
    for name, version in sorted(requires.packages.items()):
        exact = name in _HELD_TO_MINOR
        have = _installed(name)
        if have is None or not _satisfies(have, version, exact=exact):
            needed = f"{version}.*" if exact else f"{version} or newer"
            lacks.append(f"it needs {name} {needed}, here is {have or 'none'}")
    return lacks


def _satisfies(have: str, need: str, *, exact: bool) -> bool:
    return _minor(have) == _minor(need) if exact else _minor(have) >= _minor(need)


def _minor(version: str) -> tuple[int, int]:
    """The major and minor number of a version such as 2026.4.1, 2.0rc1 or 3."""
    match = re.match(r"(\d+)(?:\.(\d+))?", version)
    return (int(match[1]), int(match[2] or 0)) if match else (0, 0)


def _installed(name: str) -> str | None:
    for distribution in _PROVIDERS.get(name, (name,)):
        try:
            return metadata.version(distribution)
        except metadata.PackageNotFoundError:
            continue
    return None


def _cpuinfo(key: str) -> str | None:
    """The value of `key` for the first processor."""
    try:
        text = _CPUINFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(rf"^{key}[ \t]*:[ \t]*(.*)$", text, re.MULTILINE)
    return match[1] if match else None


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
