"""A model on a device behind the `Engine` protocol: what it makes of its rows, on the host."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from speccompile.runtime.device import Device
from speccompile.runtime.device_memory import Array, DType, Staging, as_float32
from speccompile.runtime.device_model import DeviceModel, pieces
from speccompile.runtime.engine import Logits
from speccompile.runtime.engines.cursor import Cursor
from speccompile.runtime.errors import EngineError
from speccompile.runtime.trees.masks import padded

__all__ = ["DeviceEngine"]

_WAIT_SECONDS = 120.0
_EXACT_ROWS = 16  # calls up to so many rows come again and have their own size


class DeviceEngine(Cursor):
    """One sequence in the first place of a `DeviceModel`'s batch.

    Every step brings logits to the host: for checking a plan and timing it, and for drafts that
    the host makes. A tree is one call. What the operator behind the logits says is ignored.
    """

    def __init__(self, device: Device, model: DeviceModel) -> None:
        super().__init__(model.capacity)
        self.model = model
        self._device = device
        self._arrived = device.event()
        self._most = min(_EXACT_ROWS, model.rows)
        self._widths = (*range(1, self._most + 1), *_powers(_EXACT_ROWS, model.rows))
        self._dtype: DType = model.tensors["logits"].dtype
        rows = Array(self._dtype, (self._most, model.vocabulary))
        self._row_size = rows.size // self._most
        self._staging = Staging(device, {"logits": rows}, model.addresses(1))

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        start = self.reserve(len(tokens))
        chain = range(-1, len(tokens) - 1)
        parents = chain if parents is None else parents
        wanted = len(tokens) if last is None else last
        skipped = len(tokens) - wanted
        logits = np.empty((wanted, self.model.vocabulary), np.float32)
        done = 0
        for rows, width in self._calls(len(tokens), start, whole=[*parents] != [*chain]):
            end = done + rows
            # A piece of a chain is a chain; a tree is one call.
            self._feed(tokens[done:end], parents[:rows], width, start + done)
            with self._device.range(f"{rows} rows"):
                self.model.enqueue(1, width)
            self._read(
                max(skipped - done, 0), logits[max(done - skipped, 0) : max(end - skipped, 0)]
            )
            done = end
        self.length = start + done
        return logits

    def _calls(self, count: int, start: int, *, whole: bool) -> list[tuple[int, int]]:
        """Rows and width of the calls for so many rows; those of a tree come as a `whole`."""
        room = self.capacity - start
        if not whole:
            return pieces(count, room, self._widths)
        if count > self.model.rows:
            raise EngineError(
                f"{self._device.name}: a tree of {count} rows, and its plan takes "
                f"{self.model.rows}; propose fewer nodes"
            )
        return [(count, next((width for width in self._widths if count <= width <= room), count))]

    def _feed(self, tokens: Sequence[int], parents: Sequence[int], width: int, start: int) -> None:
        """Enqueue the inputs of a call; rows of padding follow the committed ones alone."""
        rows = len(tokens)
        self.model.put("input_ids", np.array([*tokens, *[0] * (width - rows)], np.int64))
        self.model.put("parents", padded(parents, width), width)
        self.model.put("given", np.array([rows], np.int64), width)
        self.model.put("lengths", np.array([start], np.int64))

    def _read(self, first: int, into: Logits) -> None:
        """Wait for the latest call, and bring its rows from `first` on to the host."""
        for begin in range(0, max(len(into), 1), self._most):
            part = into[begin : begin + self._most]
            row = self._row_size
            data = self._staging.get("logits", (first + begin) * row, len(part) * row)
            self._arrived.record()
            self._arrived.wait(_WAIT_SECONDS, "a step")
            part[:] = as_float32(data, self._dtype).reshape(part.shape)


def _powers(above: int, most: int) -> list[int]:
    """Powers of two and `most` itself, above `above`."""
    widths: list[int] = []
    while above * 2 < most:
        above *= 2
        widths.append(above)
    return [*widths, most] if most > above else widths
