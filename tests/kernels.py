"""The CUDA kernels on a host: the very sources, compiled by g++ through ``kernels/host.h``."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.plugins.cubins import kernel_sources
from speccompile.plugins.launches import KERNELS, Launch

__all__ = ["HostKernels", "addresses", "build_host_kernels", "host_kernels"]

_COMPILER = "g++"
_FLAGS = ("-std=c++20", "-O2", "-ffp-contract=off", "-fPIC", "-shared", "-pthread", "-Wall")
_UNIT = """
#include "kernels.cu"
#define KERNEL(NAME)                                                          \\
    extern "C" void host_##NAME(unsigned x, unsigned y, unsigned z,           \\
                                unsigned threads, void **arguments)           \\
    {                                                                         \\
        launch(NAME, {x, y, z}, threads, arguments);                          \\
    }
"""


class HostKernels:
    """Carries launches out on host addresses: blocks one after the other, of `threads` threads."""

    def __init__(self, library: Path) -> None:
        self._library = ctypes.CDLL(str(library))

    def launch(self, launch: Launch, threads: int = 1) -> None:
        pointers = [
            ctypes.cast(ctypes.pointer(value), ctypes.c_void_p) for value in launch.arguments
        ]
        arguments = (ctypes.c_void_p * len(pointers))(*pointers)
        function = self._library[f"host_{launch.kernel}"]
        function(*(ctypes.c_uint(size) for size in launch.grid), ctypes.c_uint(threads), arguments)

    def run(self, launches: Iterable[Launch], threads: int = 1) -> None:
        for launch in launches:
            self.launch(launch, threads)


@cache
def host_kernels() -> HostKernels:
    """Compiled once for all tests; where there is no compiler, the test is skipped."""
    return build_host_kernels(kernel_sources())


def build_host_kernels(sources: Mapping[str, str]) -> HostKernels:
    """Of sources by their file names, which may differ from those of the package."""
    if shutil.which(_COMPILER) is None:
        pytest.skip(f"runs the CUDA kernels on the host, which needs {_COMPILER}")
    with TemporaryDirectory() as name:
        folder = Path(name)
        for file, text in sources.items():
            (folder / file).write_text(text)
        unit = folder / "unit.cpp"
        unit.write_text(_UNIT + "\n".join(f"KERNEL({kernel})" for kernel in KERNELS))
        library = folder / "kernels.so"
        command = [_COMPILER, *_FLAGS, "-o", str(library), str(unit)]
        subprocess.run(command, check=True)
        return HostKernels(library)  # once loaded, it needs no file


def addresses(arrays: Mapping[str, NDArray[np.generic]]) -> dict[str, int]:
    """Where arrays are, as launches want it; the caller keeps them alive."""
    assert all(array.flags.c_contiguous for array in arrays.values())
    return {name: array.ctypes.data for name, array in arrays.items()}
