"""kernels: the CUDA kernels of the operators, compiled for one GPU architecture."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from speccompile.plugins.cubins import KernelError, compile_kernels
from speccompile.runtime.errors import EngineError

__all__ = ["KERNELS_FILE", "run"]

KERNELS_FILE = "kernels.cubin"


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `architecture`, such as "sm89", and `nvrtc`, the compiler's version."""
    try:
        (folder / KERNELS_FILE).write_bytes(compile_kernels(settings["architecture"]))
    except KernelError as error:
        raise EngineError(f"engine.tensorrt {settings['architecture']}: {error}") from error
