"""A device that is ordinary memory: what it is asked for happens in the order of its stream.

Two kinds of bad timing are tried. An eager device has done everything before the host goes on: who
reads too late, sees what came after. One that is not eager does nothing until it is waited for: who
reads or overwrites too early, sees it too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.launches import Launch
from speccompile.runtime.device import ALIGNMENT, MemoryUse, wait_until
from speccompile.runtime.device_memory import host_array
from speccompile.runtime.errors import EngineError
from tests.round_kernels import run_launch

__all__ = ["HostDevice", "Operation"]

Work = Callable[[], None]


@dataclass(frozen=True)
class Operation:
    """What the device was asked for: `captured` operations are recorded, not enqueued."""

    kind: str
    detail: object = None
    captured: bool = False


@dataclass
class HostDevice:
    """See `Device`. `hangs` stops it for good; `fails` names an operation that it refuses, once it
    was asked for that `after` times more."""

    eager: bool = True
    run: Callable[[Launch], None] = run_launch
    free: int = 1 << 30
    hangs: bool = False
    fails: str = ""
    after: int = 0
    name: str = "the host"
    stream: int = 7
    operations: list[Operation] = field(default_factory=list[Operation])
    capturing: list[Work] | None = None
    allocations: int = 0
    _waiting: deque[Work] = field(default_factory=deque[Work])
    _sources: set[int] = field(default_factory=set[int])  # of uploads under way
    _memory: list[NDArray[np.uint8]] = field(default_factory=list[NDArray[np.uint8]])

    def allocate(self, size: int) -> int:
        return self._allocate("allocate", size)

    def allocate_pinned(self, size: int) -> int:
        return self._allocate("allocate_pinned", size)

    def upload(self, address: int, source: int, size: int) -> None:
        assert self.capturing is None, "a replay would copy what the host's memory then holds"
        assert source not in self._sources, "the host's memory was written before it was copied"
        self._copy("upload", address, source, size)
        if not self.eager:
            self._sources.add(source)

    def download(self, target: int, address: int, size: int) -> None:
        self._copy("download", target, address, size)

    def clear(self, address: int, size: int) -> None:
        self.enqueue("clear", (address, size), lambda: host_array(address, size).fill(0))

    def launch(self, launch: Launch) -> None:
        arguments = tuple(argument.value for argument in launch.arguments)
        self.enqueue(launch.kernel, arguments, lambda: self.run(launch))

    def event(self) -> HostEvent:
        return HostEvent(self)

    def capture(self, record: Work) -> HostGraph:
        assert self.capturing is None, "one capture within another"
        self._note("capture")
        works: list[Work] = []
        self.capturing = works
        try:
            record()
        finally:
            self.capturing = None
        return HostGraph(self, works)

    @contextmanager
    def range(self, name: str) -> Generator[None]:
        self._note("range", name)
        yield

    def memory(self) -> MemoryUse:
        return MemoryUse(self.free, self.free, 0)

    def enqueue(self, kind: str, detail: object, work: Work) -> None:
        """Have `work` done on the stream, or recorded."""
        self._note(kind, detail)
        if self.capturing is not None:
            self.capturing.append(work)
        elif self.eager:
            work()
        else:
            self._waiting.append(work)

    def proceed(self, done: Callable[[], bool]) -> bool:
        """Work until `done`; False where that is not to be."""
        while not self.hangs and not done():
            self._waiting.popleft()()
        return not self.hangs

    def kinds(self, *wanted: str) -> list[str]:
        """The operations so far, of these kinds only."""
        return [operation.kind for operation in self.operations if operation.kind in wanted]

    def _allocate(self, kind: str, size: int) -> int:
        assert self.capturing is None, "allocated while capturing"
        self._note(kind, size)
        self.allocations += 1
        memory = np.zeros(size + ALIGNMENT, np.uint8)
        self._memory.append(memory)
        return -(-memory.ctypes.data // ALIGNMENT) * ALIGNMENT

    def _copy(self, kind: str, target: int, source: int, size: int) -> None:
        def copy() -> None:
            host_array(target, size)[:] = host_array(source, size)
            self._sources.discard(source)

        self.enqueue(kind, (target, source, size), copy)

    def _note(self, kind: str, detail: object = None) -> None:
        if kind == self.fails:
            self.after -= 1
            if self.after < 0:
                raise EngineError(f"{self.name}: {kind} failed")
        self.operations.append(Operation(kind, detail, self.capturing is not None))


@dataclass
class HostEvent:
    """See `Event`."""

    device: HostDevice
    recorded: int = 0
    reached: int = 0

    def record(self) -> None:
        self.device.enqueue("record", id(self), self._reach)
        self.recorded += 1

    def wait(self, seconds: float, doing: str) -> None:
        assert self.device.capturing is None, "waited while capturing"
        self.device.operations.append(Operation("wait", doing))
        upto = self.recorded

        def done() -> bool:
            return self.device.proceed(lambda: self.reached >= upto)

        wait_until(done, seconds, self.device.name, doing)

    def _reach(self) -> None:
        self.reached += 1


@dataclass
class HostGraph:
    """See `Graph`."""

    device: HostDevice
    works: list[Work]

    def replay(self) -> None:
        assert self.device.capturing is None, "replayed while capturing"

        def work() -> None:
            for each in self.works:
                each()

        self.device.enqueue("replay", id(self), work)

    def close(self) -> None:
        self.works.clear()
