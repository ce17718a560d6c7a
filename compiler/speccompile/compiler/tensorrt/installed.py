"""Which TensorRT a build would use, and its version, without importing a library of 230 MB."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version
from typing import Literal, NamedTuple

from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.gpus import library_version

__all__ = ["INSTALL", "Installed", "installed_library", "nvrtc_version"]

_NAMES: tuple[Literal["tensorrt", "tensorrt_rtx"], ...] = ("tensorrt", "tensorrt_rtx")
INSTALL = {
    "tensorrt": "pip install 'speccompile[cuda]', on a host with an NVIDIA GPU",
    "tensorrt_rtx": "pip install 'speccompile[tensorrt-rtx]'",
}
"""How each library is installed."""


class Installed(NamedTuple):
    """A module, and the version of the distribution that has it."""

    name: Literal["tensorrt", "tensorrt_rtx"]
    version: str


def installed_library(name: Literal["auto", "tensorrt", "tensorrt_rtx"]) -> Installed:
    """The library called `name`; "auto" is the first of both that is installed.

    Raises SpeccompileError, with the way to install it, where it is not.
    """
    for module in _NAMES if name == "auto" else (name,):
        if found := library_version(module):
            return Installed(module, found)
    wanted = "tensorrt_rtx" if name == "auto" else name
    raise _missing(wanted)


def nvrtc_version() -> str:
    """Of the compiler of kernels. Raises SpeccompileError where it is not installed."""
    try:
        return version("nvidia-cuda-nvrtc")
    except PackageNotFoundError:
        raise _missing("nvidia-cuda-nvrtc") from None


def _missing(package: str) -> SpeccompileError:
    install = INSTALL.get(package, INSTALL["tensorrt_rtx"])
    return SpeccompileError(f"engine.tensorrt needs {package}, which is not installed: {install}")
