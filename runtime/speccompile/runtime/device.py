"""What the runtime asks of a GPU, and no more: memory, copies, launches, graphs, waits that end.

Everything is enqueued on one stream and runs in that order. Addresses are plain numbers, so that a
test's device can be ordinary memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from speccompile.plugins.launches import Launch
from speccompile.runtime.errors import EngineError

__all__ = ["ALIGNMENT", "Device", "Event", "Graph", "MemoryUse", "wait_until"]

ALIGNMENT = 256
"""Bytes: what a device aligns an allocation to, and TensorRT wants for its own memory."""

_PAUSE_SECONDS = 20e-6


@dataclass(frozen=True)
class MemoryUse:
    """Bytes of a device: free now, in all, and the most that this process was seen to hold."""

    free: int
    total: int
    peak: int


class Event(Protocol):
    """A place on the stream, to wait for."""

    def record(self) -> None:
        """The place is here: behind all that was enqueued so far."""
        ...

    def wait(self, seconds: float, doing: str) -> None:
        """Return when the stream has come to where the event was last recorded.

        Raises EngineError, naming what the device was `doing`, where that fails or takes longer.
        """
        ...


class Graph(Protocol):
    """What a capture recorded: all of it is enqueued again by one call."""

    def replay(self) -> None:
        """Enqueue it. Raises EngineError where the device refuses."""
        ...

    def close(self) -> None:
        """Forget it."""
        ...


class Device(Protocol):
    """One GPU, its memory and one stream. Every method raises EngineError for what fails."""

    @property
    def name(self) -> str:
        """For messages: what device, and how it was chosen."""
        ...

    @property
    def stream(self) -> int:
        """The handle that a library enqueues on."""
        ...

    def allocate(self, size: int) -> int:
        """The address of `size` bytes that are zero, aligned to `ALIGNMENT`; kept until the end."""
        ...

    def allocate_pinned(self, size: int) -> int:
        """Likewise in the host's memory, at an address that both the host and kernels use."""
        ...

    def upload(self, address: int, source: int, size: int) -> None:
        """Enqueue a copy from pinned memory, which must not change before it is done."""
        ...

    def download(self, target: int, address: int, size: int) -> None:
        """Enqueue a copy into pinned memory."""
        ...

    def clear(self, address: int, size: int) -> None:
        """Enqueue a write of zeros."""
        ...

    def launch(self, launch: Launch) -> None:
        """Enqueue a kernel."""
        ...

    def event(self) -> Event:
        """A new one; as long as it was not recorded, it does not wait."""
        ...

    def capture(self, record: Callable[[], None]) -> Graph:
        """What `record` enqueues, as a graph; none of it is run.

        What `record` raises is raised, after the capture was ended.
        """
        ...

    def range(self, name: str) -> AbstractContextManager[None]:
        """Name what is enqueued within, for a profiler's time line."""
        ...

    def memory(self) -> MemoryUse: ...


def wait_until(done: Callable[[], bool], seconds: float, device: str, doing: str) -> None:
    """Ask `done` until it says so; raises EngineError after so many seconds."""
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise EngineError(
                f"{device}: {doing} did not end within {seconds:g} s; see what else runs on it "
                "with nvidia-smi, and start again"
            )
        time.sleep(_PAUSE_SECONDS)
