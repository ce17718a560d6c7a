"""Time that a device takes for what is enqueued on its stream."""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable
from typing import Protocol

from speccompile.plugins.launches import Launch, verify_launches, verify_workspace
from speccompile.runtime.device import Device
from speccompile.runtime.devices.cuda import CudaDevice
from speccompile.runtime.devices.driver import open_driver

__all__ = ["Clock", "ColdCache", "CudaClock", "replayed"]

Work = Callable[[], None]

_LAUNCHES = 20  # of one graph: what a host's launch costs is spread over them


class Clock(Protocol):
    def seconds(self, work: Work) -> float:
        """Between the beginning and the end, on the device, of what `work` enqueues."""
        ...


class CudaClock:
    """Events of the driver on the device's stream, and what else only a driver knows."""

    def __init__(self, device: CudaDevice) -> None:
        self._driver = open_driver(os.environ.get("CUDA_VISIBLE_DEVICES"))
        self._stream = device.stream
        self._begin, self._end = (self._driver("cuEventCreate", 0) for _ in range(2))

    def seconds(self, work: Work) -> float:
        self._driver("cuEventRecord", self._begin, self._stream)
        work()
        self._driver("cuEventRecord", self._end, self._stream)
        self._driver("cuEventSynchronize", self._end)
        return float(self._driver("cuEventElapsedTime", self._begin, self._end)) * 1e-3

    def attribute(self, name: str) -> int:
        """One of CUdevice_attribute."""
        kind = getattr(self._driver.constants.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self._driver("cuDeviceGetAttribute", kind, self._driver("cuCtxGetDevice")))

    def copy(self, target: int, source: int, size: int) -> None:
        """Enqueue a copy within the device's memory."""
        self._driver("cuMemcpyDtoDAsync", target, source, size, self._stream)


def replayed(device: Device, clock: Clock, work: Work, *, times: int = 5) -> float:
    """Seconds of `work` when it is repeated without a pause, which leaves the L2 warm."""

    def record() -> None:
        for _ in range(_LAUNCHES):
            work()

    work()  # what loads at the first launch is not timed
    graph = device.capture(record)
    graph.replay()
    seconds = statistics.median(clock.seconds(graph.replay) for _ in range(times))
    graph.close()
    return seconds / _LAUNCHES


class ColdCache:
    """Times work with nothing of it in the L2: other memory was read ahead of it, and none written,
    so that nothing waits to be written back. Meanwhile the host enqueues the work: its launches
    are not timed, but the gaps of some 2 us between events are."""

    _VOCABULARY = 1 << 18

    def __init__(self, device: Device, clock: Clock, cache_bytes: int) -> None:
        self._device, self._clock = device, clock
        sizes = 1, max(-(-3 * cache_bytes // (4 * self._VOCABULARY)), 1), self._VOCABULARY
        nodes = sizes[1]
        names = {"tokens": nodes, "parents": nodes, "path": nodes, "emitted": nodes}
        at = {name: device.allocate(8 * count) for name, count in names.items()}
        at |= {name: device.allocate(8) for name in ("given", "count", "next_token")}
        at["logits"] = device.allocate(4 * nodes * self._VOCABULARY)
        workspace = device.allocate(verify_workspace(*sizes[:2]))
        # All parents are 0, so that every row is looked at.
        self._read: Launch = verify_launches("greedy", "float32", *sizes, at, workspace)[0]

    def seconds(self, work: Work, *, times: int = 15) -> float:
        def once() -> float:
            self._device.launch(self._read)
            return self._clock.seconds(work)

        once()
        return statistics.median(once() for _ in range(times))
