"""Machine code of the kernels, for any GPU and without one: NVRTC compiles their sources."""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from importlib import import_module
from importlib.resources import as_file, files
from importlib.resources.abc import Traversable
from typing import Any

from speccompile.plugins.schema import VERSION

__all__ = ["ARCHITECTURES", "KernelError", "abi", "compile_kernels", "kernel_sources"]

ARCHITECTURES = ("sm75", "sm80", "sm86", "sm89", "sm90", "sm100", "sm120")
"""Those that are compiled in the tests; any other that NVRTC knows is as good."""

_UNIT = "kernels.cu"
_SUFFIXES = (".cu", ".cuh", ".h")
# Every operation rounded by itself, as numpy rounds it, and subnormal numbers kept.
_OPTIONS: dict[str, str | bool] = {"std": "c++17", "fma": False, "ftz": False, "prec_div": True}
_INSTALL = "pip install 'speccompile[cuda]'"


class KernelError(Exception):
    """The kernels cannot be compiled; one line says why, and the way out."""


@cache
def kernel_sources() -> dict[str, str]:
    """The text of every file of the kernels, by its name."""
    found = (file for file in _folder().iterdir() if file.name.endswith(_SUFFIXES))
    return {
        file.name: file.read_text("utf-8") for file in sorted(found, key=lambda file: file.name)
    }


def abi() -> str:
    """A hash of what the kernels are and of how they are called: 64 hexadecimal digits."""
    parts = [VERSION, repr(_OPTIONS)]
    for name, text in kernel_sources().items():
        parts += [name, text]
    return sha256("\0".join(parts).encode()).hexdigest()


def compile_kernels(architecture: str) -> bytes:
    """The cubin of all kernels for `architecture`, such as "sm89": the same bytes every time.

    Raises KernelError.
    """
    core, absent, failure = _compiler()
    with as_file(_folder()) as folder:
        options = core.ProgramOptions(
            name=_UNIT,
            arch=architecture.replace("sm", "sm_"),
            include_path=str(folder),
            **_OPTIONS,
        )
        try:
            program = core.Program(kernel_sources()[_UNIT], "c++", options)
            return bytes(program.compile("cubin").code)
        except absent as error:
            raise KernelError(f"NVRTC is not installed: {_INSTALL}") from error
        except failure as error:
            reason = " ".join(str(error).rstrip("\0").split())
            raise KernelError(f"NVRTC has no kernels for {architecture}: {reason}") from error


def _compiler() -> tuple[Any, type[Exception], type[Exception]]:
    """cuda.core, its error for a library that is not there, and the one for all else."""
    try:
        core = import_module("cuda.core")
        absent = import_module("cuda.pathfinder").DynamicLibNotFoundError
        failure = import_module("cuda.core._utils.cuda_utils").NVRTCError
    except ImportError as error:
        raise KernelError(f"the CUDA kernels need NVRTC: {_INSTALL}") from error
    return core, absent, failure


def _folder() -> Traversable:
    return files("speccompile.plugins") / "kernels"
