"""What stands for a GPU in the tests of its check: a host, the kernels compiled for it, a clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

from tests.host_device import HostDevice
from tests.kernels import HostKernels, host_kernels

__all__ = ["HostClock", "host_device"]


class HostClock:
    """See `Clock`; of a device that has done everything before the host goes on."""

    def seconds(self, work: Callable[[], None]) -> float:
        start = time.perf_counter()
        work()
        return time.perf_counter() - start


def host_device(*, eager: bool = True, kernels: HostKernels | None = None) -> HostDevice:
    return HostDevice(eager, run=partial((kernels or host_kernels()).launch, threads=1))
