"""Kernels on the device, by the CUDA driver: a cubin loaded, a launch carried out."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import addressof, c_void_p
from importlib import import_module
from typing import Protocol

from speccompile.plugins.launches import KERNELS, Launch

__all__ = ["CubinKernels", "Kernels"]


class Kernels(Protocol):
    """The kernels (`launches.KERNELS`) on a device; RuntimeError carries what it refuses."""

    def load(self) -> None:
        """Make every kernel ready: called ahead of the first launch, outside of any capture."""
        ...

    def launch(self, launch: Launch, stream: int) -> None:
        """Put one launch on the stream, by its address, and wait for nothing."""
        ...


class CubinKernels:
    """The kernels of the cubin that `image` gives, in the current context of who calls.

    The cubin is asked for, and the driver touched, when the kernels are first needed: an object can
    be made on a machine without a GPU.
    """

    def __init__(self, image: Callable[[], bytes]) -> None:
        self._image = image
        self._functions: dict[str, object] = {}

    def load(self) -> None:
        if self._functions:
            return
        [module] = _call("cuModuleLoadData", self._image())
        functions: dict[str, object] = {}
        for symbol in KERNELS:
            [functions[symbol]] = _call("cuModuleGetFunction", module, symbol.encode())
        self._functions = functions

    def launch(self, launch: Launch, stream: int) -> None:
        self.load()
        # The driver copies the arguments before it returns.
        arguments = (c_void_p * len(launch.arguments))(*map(addressof, launch.arguments))
        _call(
            "cuLaunchKernel",
            self._functions[launch.kernel],
            *launch.grid,
            *launch.block,
            launch.shared_bytes,
            stream,
            addressof(arguments),
            0,
        )


def _call(function: str, *arguments: object) -> list[object]:
    """What a function of the driver gives back behind its return code."""
    driver = import_module("cuda.bindings.driver")
    code, *values = getattr(driver, function)(*arguments)
    if code != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(f"{function}: {code.name}")
    return list(values)
