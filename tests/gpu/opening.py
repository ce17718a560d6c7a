"""The GPU and its kernels, opened for a section."""

from __future__ import annotations

import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module

from speccompile.plugins.cubins import compile_kernels
from speccompile.plugins.driver import CubinKernels
from speccompile.runtime.devices.cuda import CudaDevice
from tests.gpu.sections import Task

__all__ = ["compiled_kernels", "open_cuda", "open_device"]


@contextmanager
def open_cuda(task: Task) -> Generator[CudaDevice]:
    """The first visible GPU, with the kernels compiled for it."""
    with open_device() as device:
        device.load(compiled_kernels(device, task))
        yield device


@contextmanager
def open_device() -> Generator[CudaDevice]:
    """The first visible GPU."""
    device = CudaDevice("0")
    try:
        yield device
    finally:
        device.close()


def compiled_kernels(device: CudaDevice, task: Task) -> CubinKernels:
    """By the NVRTC of this host."""
    start = time.perf_counter()
    cubin = compile_kernels(device.architecture)
    seconds = time.perf_counter() - start
    _, *version = import_module("cuda.bindings.nvrtc").nvrtcVersion()
    task.note(
        "cubin",
        {
            "architecture": device.architecture,
            "bytes": len(cubin),
            "compile_seconds": round(seconds, 2),
            "nvrtc": ".".join(map(str, version)),
            "cuda_of_driver": ".".join(map(str, device.cuda_version)),
        },
    )
    return CubinKernels(lambda: cubin)
