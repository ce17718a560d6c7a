"""NVIDIA's driver, answering as it does where there is a GPU, and noting what it was asked."""

from __future__ import annotations

import ctypes
import sys
from collections import Counter
from collections.abc import Callable
from enum import IntEnum
from types import SimpleNamespace
from typing import Any

import pytest

__all__ = ["FakeDriver", "Result"]


class Result(IntEnum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_LAUNCH_FAILED = 719
    CUDA_ERROR_SYSTEM_DRIVER_MISMATCH = 803


class FakeDriver:
    """Functions return handles that are numbers; `fails` maps some to the code that they return.

    `pending` says how often a query finds the device at work before it is done.
    """

    def __init__(self, *, models: tuple[str, ...] = ("NVIDIA L4",)) -> None:
        self.models = models
        self.fails: dict[str, Result] = {}
        self.pending = 0
        self.free = 10 << 30
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.CUresult = Result
        self.CU_MEMHOSTALLOC_PORTABLE, self.CU_MEMHOSTALLOC_DEVICEMAP = 1, 2
        self.CUstream_flags = SimpleNamespace(CU_STREAM_NON_BLOCKING=1)
        self.CUevent_flags = SimpleNamespace(CU_EVENT_DISABLE_TIMING=2)
        self.CUstreamCaptureMode = SimpleNamespace(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL=1)
        self.CUdevice_attribute = SimpleNamespace(
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR=75,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR=76,
        )
        self._pinned: list[Any] = []

    def install(self, monkeypatch: pytest.MonkeyPatch, visible: str | None = None) -> None:
        monkeypatch.setitem(sys.modules, "cuda.bindings.driver", self)
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if visible is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)

    def count(self, function: str) -> int:
        return Counter(name for name, _ in self.calls)[function]

    def arguments(self, function: str) -> list[tuple[Any, ...]]:
        return [arguments for name, arguments in self.calls if name == function]

    def __getattr__(self, function: str) -> Callable[..., tuple[Any, ...]]:
        if not function.startswith("cu"):
            raise AttributeError(function)

        def call(*arguments: Any) -> tuple[Any, ...]:  # noqa: ANN401 - handles of any kind
            self.calls.append((function, arguments))
            code = self._code(function)
            answer = getattr(self, f"_{function}", self._handle)(*arguments)
            return (code, *(answer if code == 0 else [None] * len(answer)))

        return call

    def _code(self, function: str) -> Result:
        if function == "cuEventQuery" and self.pending:
            self.pending -= 1
            return Result.CUDA_ERROR_NOT_READY
        return self.fails.get(function, Result.CUDA_SUCCESS)

    def _handle(self, *_: object) -> tuple[Any, ...]:
        return (len(self.calls),)

    def _cuInit(self, _: int) -> tuple[()]:
        return ()

    def _cuGetErrorName(self, code: Result) -> tuple[bytes]:
        return (code.name.encode(),)

    def _cuGetErrorString(self, code: Result) -> tuple[bytes]:
        return (code.name.removeprefix("CUDA_ERROR_").replace("_", " ").lower().encode(),)

    def _cuDeviceGetCount(self) -> tuple[int]:
        return (len(self.models),)

    def _cuDeviceGet(self, index: int) -> tuple[int]:
        return (index,)

    def _cuDeviceGetName(self, length: int, device: int) -> tuple[bytes]:
        return (self.models[device].encode().ljust(length, b"\0"),)

    def _cuDeviceGetUuid(self, device: int) -> tuple[Any]:
        return (SimpleNamespace(bytes=bytes([device] * 16)),)

    def _cuDeviceGetAttribute(self, attribute: int, _: int) -> tuple[int]:
        return ({75: 8, 76: 9}[attribute],)

    def _cuDriverGetVersion(self) -> tuple[int]:
        return (13010,)

    def _cuMemGetInfo(self) -> tuple[int, int]:
        return (self.free, 24 << 30)

    def _cuMemAlloc(self, size: int) -> tuple[int]:
        self.free -= size
        return (1 << 40,)

    def _cuMemHostAlloc(self, size: int, _: int) -> tuple[int]:
        self._pinned.append(ctypes.create_string_buffer(size))
        return (ctypes.addressof(self._pinned[-1]),)

    def _cuEventQuery(self, _: object) -> tuple[()]:
        return ()
