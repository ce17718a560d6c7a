"""What is waited for on a CUDA stream, and what is enqueued there by one call."""

from __future__ import annotations

from collections.abc import Callable

from speccompile.runtime.device import wait_until
from speccompile.runtime.devices.driver import Driver
from speccompile.runtime.errors import EngineError

__all__ = ["CudaEvent", "CudaGraph"]


class CudaEvent:
    """See `Event`. `use` makes the device's context current to the calling thread."""

    def __init__(self, driver: Driver, stream: object, use: Callable[[], None]) -> None:
        self._driver, self._stream, self._use = driver, stream, use
        flags = driver.constants.CUevent_flags
        self._event = driver("cuEventCreate", flags.CU_EVENT_DISABLE_TIMING)

    def record(self) -> None:
        self._use()
        self._driver("cuEventRecord", self._event, self._stream)

    def wait(self, seconds: float, doing: str) -> None:
        self._use()

        def done() -> bool:
            return self._driver.ready("cuEventQuery", self._event)

        wait_until(done, seconds, self._driver.name, doing)


class CudaGraph:
    """See `Graph`; `use` as in `CudaEvent`."""

    def __init__(
        self, driver: Driver, stream: object, graph: object, use: Callable[[], None]
    ) -> None:
        self._driver, self._stream, self._use = driver, stream, use
        try:
            self._executable = driver("cuGraphInstantiate", graph, 0)
        finally:
            driver.quietly("cuGraphDestroy", graph)
        try:
            driver("cuGraphUpload", self._executable, stream)
        except EngineError:
            self.close()
            raise

    def replay(self) -> None:
        self._use()
        self._driver("cuGraphLaunch", self._executable, self._stream)

    def close(self) -> None:
        self._use()
        self._driver.quietly("cuGraphExecDestroy", self._executable)
