"""An NVIDIA GPU as a `Device`: one stream of the driver's API."""

from __future__ import annotations

import ctypes
import gc
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from uuid import UUID

from speccompile.plugins.launches import Launch
from speccompile.plugins.tensorrt_plugin import Kernels
from speccompile.runtime.device import MemoryUse
from speccompile.runtime.devices.cuda_work import CudaEvent, CudaGraph
from speccompile.runtime.devices.driver import Driver, open_driver
from speccompile.runtime.devices.visible import choose, visible_note
from speccompile.runtime.errors import EngineError

__all__ = ["CudaDevice"]


class CudaDevice:
    """Holds a GPU's context and a stream; any thread may use it, one at a time."""

    def __init__(self, wanted: str = "auto") -> None:
        """`wanted` is an index or a UUID (see `choose`).

        Raises CompatibilityError where there is no such device, or no driver.
        """
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        self._driver = driver = open_driver(visible)
        uuids = _uuids(driver)
        index = choose(wanted, uuids, visible)
        self._device = driver("cuDeviceGet", index)
        model, note = _model(driver, self._device), visible_note(visible)
        driver.name = self.name = f"{model}, cuda:{index} {uuids[index]}{note}"
        self._context = driver("cuDevicePrimaryCtxRetain", self._device)
        self._use()
        constants = driver.constants
        self._stream = driver("cuStreamCreate", constants.CUstream_flags.CU_STREAM_NON_BLOCKING)
        self._kernels: Kernels | None = None
        self._device_memory: list[int] = []
        self._pinned_memory: list[int] = []
        self._free_at_first, _ = driver("cuMemGetInfo")
        self._peak = 0
        self._nvtx: Any = import_module("nvtx") if find_spec("nvtx") else None

    @property
    def stream(self) -> int:
        self._use()
        return int(self._stream)

    @property
    def architecture(self) -> str:
        """As in the name of an artifact's engines: "sm89"."""
        attribute = self._driver.constants.CUdevice_attribute
        major = attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR
        minor = attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR
        version = [
            self._driver("cuDeviceGetAttribute", each, self._device) for each in (major, minor)
        ]
        return f"sm{version[0]}{version[1]}"

    @property
    def cuda_version(self) -> tuple[int, int]:
        """The latest CUDA that the driver runs, as (major, minor)."""
        version = int(self._driver("cuDriverGetVersion"))
        return version // 1000, version % 1000 // 10

    def allocate(self, size: int) -> int:
        address = int(self._call("cuMemAlloc", size))
        self._device_memory.append(address)
        self.clear(address, size)
        self.memory()  # for its peak
        return address

    def allocate_pinned(self, size: int) -> int:
        constants = self._driver.constants
        flags = constants.CU_MEMHOSTALLOC_PORTABLE | constants.CU_MEMHOSTALLOC_DEVICEMAP
        # Under unified addressing, which every 64-bit system has, the address is the device's too.
        address = int(self._call("cuMemHostAlloc", size, flags))
        self._pinned_memory.append(address)
        ctypes.memset(address, 0, size)
        return address

    def upload(self, address: int, source: int, size: int) -> None:
        self._call("cuMemcpyHtoDAsync", address, source, size, self._stream)

    def download(self, target: int, address: int, size: int) -> None:
        self._call("cuMemcpyDtoHAsync", target, address, size, self._stream)

    def clear(self, address: int, size: int) -> None:
        self._call("cuMemsetD8Async", address, 0, size, self._stream)

    def load(self, kernels: Kernels) -> None:
        """Take the kernels that are launched from now on; they must be of this architecture."""
        self._use()
        try:
            kernels.load()
        except RuntimeError as error:
            raise EngineError(
                f"{self.name}: does not take the kernels ({error}); build for {self.architecture}, "
                f"and for CUDA {'.'.join(map(str, self.cuda_version))} at most: the driver's"
            ) from error
        self._kernels = kernels

    def launch(self, launch: Launch) -> None:
        if self._kernels is None:
            raise EngineError(f"{self.name}: {launch.kernel} was not loaded")
        self._use()
        try:
            self._kernels.launch(launch, int(self._stream))
        except RuntimeError as error:
            raise EngineError(f"{self.name}: {launch.kernel} was not launched: {error}") from error

    def event(self) -> CudaEvent:
        self._use()
        return CudaEvent(self._driver, self._stream, self._use)

    def capture(self, record: Callable[[], None]) -> CudaGraph:
        mode = self._driver.constants.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        # A library's object that is collected while recording may free memory: that ends a capture.
        gc.collect()
        gc.disable()
        try:
            graph = self._recorded(mode, record)
        finally:
            gc.enable()
        return CudaGraph(self._driver, self._stream, graph, self._use)

    def _recorded(self, mode: object, record: Callable[[], None]) -> object:
        self._call("cuStreamBeginCapture", self._stream, mode)
        try:
            record()
        except BaseException:
            # A stream that is left capturing takes no other work.
            if graph := self._driver.quietly("cuStreamEndCapture", self._stream):
                self._driver.quietly("cuGraphDestroy", graph)
            raise
        return self._call("cuStreamEndCapture", self._stream)

    def range(self, name: str) -> AbstractContextManager[None]:
        """Needs the package nvtx; without it, nothing is marked."""
        marked: AbstractContextManager[None] = (
            self._nvtx.annotate(name, domain="speccompile") if self._nvtx else nullcontext()
        )
        return marked

    def memory(self) -> MemoryUse:
        free, total = self._call("cuMemGetInfo")
        self._peak = max(self._peak, self._free_at_first - free)
        return MemoryUse(int(free), int(total), int(self._peak))

    def close(self) -> None:
        """Give everything back; nothing of this device may be used after it."""
        self._use()
        self._driver.quietly("cuStreamSynchronize", self._stream)
        for address in self._device_memory:
            self._driver.quietly("cuMemFree", address)
        for address in self._pinned_memory:
            self._driver.quietly("cuMemFreeHost", address)
        self._driver.quietly("cuStreamDestroy", self._stream)
        self._driver.quietly("cuDevicePrimaryCtxRelease", self._device)

    def _call(self, function: str, *arguments: object) -> Any:  # noqa: ANN401 - any handle
        self._use()
        return self._driver(function, *arguments)

    def _use(self) -> None:
        """A context is current to a thread, of which a session may be used by several; and another
        library may have changed it."""
        self._driver("cuCtxSetCurrent", self._context)


def _uuids(driver: Driver) -> list[str]:
    """Of the devices that are visible."""
    count = int(driver("cuDeviceGetCount")) if driver.started else 0
    return [_uuid(driver, driver("cuDeviceGet", index)) for index in range(count)]


def _uuid(driver: Driver, device: object) -> str:
    identifier = UUID(bytes=bytes(driver("cuDeviceGetUuid", device).bytes))
    # The driver gives an instance its own UUID, but says only in the name that it is one.
    return f"{'MIG' if ' MIG ' in _model(driver, device) else 'GPU'}-{identifier}"


def _model(driver: Driver, device: object) -> str:
    name = bytes(driver("cuDeviceGetName", 128, device))
    return name.split(b"\0")[0].decode(errors="replace").strip()
