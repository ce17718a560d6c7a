"""The report of a check: on what it was run, with which libraries, and what came of it."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, datetime
from importlib import metadata
from typing import Any

from speccompile.plugins.cubins import abi
from speccompile.runtime.gpus import Found
from tests.gpu.sections import Outcome

__all__ = ["as_report"]

_PACKAGES = (
    "numpy",
    "torch",
    "transformers",
    "cuda-bindings",
    "cuda-core",
    "cuda-pathfinder",
    "nvidia-cuda-nvrtc",
    "nvidia-cuda-nvrtc-cu12",
    "tensorrt",
    "tensorrt_rtx_cu13",
    "onnx",
    "onnx-ir",
    "onnxruntime",
    "openvino",
)


def as_report(found: Found, outcomes: Mapping[str, Outcome], seconds: float) -> dict[str, Any]:
    """For JSON. `kernels` is the hash of the kernels that were checked."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 1),
        "gpu": asdict(found.gpus[0]),
        "driver": asdict(found.driver) if found.driver else None,
        "host": {"platform": platform.platform(), "python": platform.python_version()},
        "packages": {name: version for name in _PACKAGES if (version := _installed(name))},
        "kernels": abi(),
        "sections": {name: asdict(outcome) for name, outcome in outcomes.items()},
    }


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None
