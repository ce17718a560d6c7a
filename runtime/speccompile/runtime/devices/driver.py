"""NVIDIA's driver, with every return code checked."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import Any

from speccompile.runtime.devices.visible import visible_note
from speccompile.runtime.errors import CompatibilityError, EngineError

__all__ = ["Driver", "open_driver"]

_LIBRARY = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"


class Driver:
    """The functions of `cuda.bindings.driver`, by name."""

    def __init__(self, functions: ModuleType, *, started: bool) -> None:
        """It is not `started` where there is no device to see."""
        self.constants: Any = functions
        self.started = started
        self.name = "the GPU"  # that messages begin with
        self._success = functions.CUresult.CUDA_SUCCESS

    def __call__(self, function: str, *arguments: object) -> Any:  # noqa: ANN401 - any handle
        """What the function returns besides its code: nothing, a value, or a tuple.

        Raises EngineError for any code but success.
        """
        code, *values = self._run(function, arguments)
        if code != self._success:
            raise EngineError(f"{self.name}: {function} failed: {self.describe(code)}")
        return values[0] if len(values) == 1 else tuple(values) or None

    def quietly(self, function: str, *arguments: object) -> object:
        """For cleaning up behind a failure, which the code of this call must not replace.

        Returns what the function gives, if it gives anything.
        """
        _, *values = self._run(function, arguments)
        return values[0] if values else None

    def ready(self, function: str, *arguments: object) -> bool:
        """Of a query: has the device come so far? Raises EngineError if it failed on the way."""
        code, *_ = self._run(function, arguments)
        if code == self.constants.CUresult.CUDA_ERROR_NOT_READY:
            return False
        if code != self._success:
            raise EngineError(
                f"{self.name}: what it was doing failed: {self.describe(code)}; "
                "this process cannot use it any more: start again"
            )
        return True

    def describe(self, code: object) -> str:
        """A code as ``CUDA_ERROR_OUT_OF_MEMORY (out of memory)``."""
        _, name = self._run("cuGetErrorName", (code,))
        _, text = self._run("cuGetErrorString", (code,))
        return f"{_text(name) or code} ({_text(text)})"

    def _run(self, function: str, arguments: tuple[object, ...]) -> tuple[Any, ...]:
        result: tuple[Any, ...] = getattr(self.constants, function)(*arguments)
        return result


def open_driver(visible: str | None) -> Driver:
    """The driver of this host, started; `visible` is CUDA_VISIBLE_DEVICES.

    Raises CompatibilityError, saying what is missing. Where there is only no device to see, it
    returns: which ones there are is `choose`'s to say.
    """
    try:
        functions = import_module("cuda.bindings.driver")
    except ImportError as error:
        raise CompatibilityError(
            f"the package cuda-bindings does not import ({error}); "
            "pip install 'speccompile[cuda]' or 'speccompile[tensorrt-rtx]'"
        ) from error
    try:
        (code,) = functions.cuInit(0)
    except RuntimeError as error:  # cuda.pathfinder's, which says that it found none
        raise CompatibilityError(
            f"this host has no NVIDIA driver: {_LIBRARY} is not among the system's libraries; "
            "install the driver, or in a container pass the GPU with --gpus all"
        ) from error
    driver = Driver(functions, started=code == functions.CUresult.CUDA_SUCCESS)
    if not driver.started and code != functions.CUresult.CUDA_ERROR_NO_DEVICE:
        raise CompatibilityError(
            f"the NVIDIA driver does not start: {driver.describe(code)}"
            f"{visible_note(visible)}; see what `nvidia-smi` says"
        )
    return driver


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else ""
