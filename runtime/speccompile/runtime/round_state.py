"""What rounds leave on the device for the next one, and what they tell the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from speccompile.plugins.launches import ring_words
from speccompile.plugins.schema import INVALID
from speccompile.runtime.device import Device
from speccompile.runtime.device_memory import Array, Arrays, Staging, host_array
from speccompile.runtime.device_model import DeviceModel
from speccompile.runtime.errors import EngineError, RequestError
from speccompile.runtime.sampling import Sampling

__all__ = ["AHEAD", "Round", "RoundState"]

AHEAD = 2
"""Rounds on the device at a time: one that the host waits for, and one behind it."""

_WORD = 8  # bytes of an int64


@dataclass(frozen=True)
class Round:
    """The `number`-th that was enqueued, with its `batch` of sequences and so many rows of each."""

    number: int
    batch: int
    rows: int


class RoundState:
    """Sequences on a device: tokens and lengths are the target's own inputs, the rest is here.

    The host learns what a round decided from a ring in its own memory, a round late at most.
    """

    def __init__(
        self,
        device: Device,
        target: DeviceModel,
        draft: DeviceModel | None,
        *,
        shares_cache: bool,
        seconds: float,
    ) -> None:
        self.device, self.target, self.draft = device, target, draft
        self.shares_cache = shares_cache
        self._seconds = seconds
        batch = target.batch
        arrays = {
            "previous": Array("int64", (batch,)),
            "stopped": Array("int64", (batch,)),
            "seeds": Array("int64", (batch, 2)),
            "round": Array("int64", (1,)),
        }
        self._arrays = Arrays(device, arrays, what="the state of a round")
        self._staging = Staging(device, {"seeds": arrays["seeds"]}, self._arrays)
        # Records of other numbers of rows have other sizes, and rounds of both may be under way.
        words = [batch * AHEAD * ring_words(rows) for rows in range(1, target.rows + 1)]
        self._rings = np.cumsum([0, *words]) * _WORD
        self._ring = device.allocate_pinned(int(self._rings[-1]))
        self._ended = [device.event() for _ in range(AHEAD)]
        self._idle = device.event()
        self._count = 0
        self._requests = 0

    @property
    def models(self) -> list[DeviceModel]:
        return [self.target, self.draft] if self.draft else [self.target]

    def begin(self, sampling: Sampling, length: int) -> int:
        """Start a sequence whose first `length` rows are in the cache; returns its number."""
        self._staging.put(
            "seeds", np.array([[sampling.seed, sampling.sample]], np.uint64).view(np.int64)
        )
        for model in self.models:
            model.put("sampling", np.array([sampling.filters], np.float32))
            model.put("lengths", np.array([length], np.int64))
        self.settle("the request before")
        self._requests += 1
        return self._requests

    def check_current(self, request: int) -> None:
        """Raises RequestError where another request began since."""
        if request != self._requests:
            raise RequestError("another request began on these engines; finish one before the next")

    def addresses(self, rows: int) -> dict[str, int]:
        """What the launches of a round with so many rows name (`speccompile.plugins.launches`)."""
        addresses = {**self._arrays, **self.target.addresses(rows)}
        addresses["tokens"] = addresses["input_ids"]
        addresses["ring"] = self._ring_address(rows)
        if self.draft:
            drafted = self.draft.addresses(1)
            addresses["draft_input"] = drafted["input_ids"]
            addresses["draft_lengths"] = drafted["lengths"]
            addresses["draft_uniforms"] = drafted["uniforms"]
            addresses["draft_next_token"] = drafted["next_token"]
            addresses["logits"] = drafted["logits"]
            if not self.shares_cache:
                addresses["catch_up"] = drafted["input_ids"]
        return addresses

    def enqueued(self, batch: int, rows: int) -> Round:
        """Note that a round was, commit and all."""
        number = self._count
        self._ended[number % AHEAD].record()
        self._count += 1
        return Round(number, batch, rows)

    def result(self, launched: Round) -> list[list[int]]:
        """What a round adds to every sequence, when it has come to its end.

        Raises EngineError for a device that failed or hangs, and for logits that are not finite.
        """
        number, doing = launched.number, f"round {launched.number}"
        self._ended[number % AHEAD].wait(self._seconds, doing)
        shape = launched.batch, AHEAD, ring_words(launched.rows)
        size = int(np.prod(shape)) * _WORD
        ring = host_array(self._ring_address(launched.rows), size).view(np.int64).reshape(shape)
        records: list[list[int]] = ring[:, number % AHEAD].tolist()
        if any(sequence != number + 1 for sequence, *_ in records):
            raise EngineError(f"{self.device.name}: {doing} ended and left no record of itself")
        if any(count == 0 for _, count, *_ in records):
            raise EngineError(
                f"{self.device.name}: logits are not finite in {doing}; "
                "run `speccompile verify` on this host"
            )
        return [[token for token in tokens if token != INVALID] for _, _, *tokens in records]

    def settle(self, doing: str) -> None:
        """Wait until the device has nothing left to do."""
        self._idle.record()
        self._idle.wait(self._seconds, doing)

    def clear(self) -> None:
        """As if no round had ever been: what a failed one left in a cache must not be read."""
        self.settle("what failed before")
        self._arrays.clear()
        self.target.memory.clear()
        self.settle("clearing its memory")
        self._count = 0

    def _ring_address(self, rows: int) -> int:
        return self._ring + int(self._rings[rows - 1])
