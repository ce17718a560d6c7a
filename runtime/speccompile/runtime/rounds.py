"""Rounds on a device: K draft steps, verification and commit, with nothing for the host to do.

Lengths, tokens and random numbers stay on the device, so that a round can be enqueued before the
one ahead of it is known. All that it enqueues is one graph, captured once per `Kind` and replayed
ever after.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from speccompile.plugins.launches import (
    Launch,
    LogitsType,
    commit_launches,
    draft_step_launches,
    keep_logits_launches,
)
from speccompile.runtime.cached_rows import CachedRows
from speccompile.runtime.device import Device, Graph
from speccompile.runtime.device_memory import DType
from speccompile.runtime.device_model import DeviceModel
from speccompile.runtime.errors import EngineError
from speccompile.runtime.round_state import AHEAD, Round, RoundState

__all__ = ["Kind", "Rounds"]


@dataclass(frozen=True)
class Kind:
    """Rounds that are the same graph: of `batch` sequences with so many drafted tokens.

    Where nothing is `sampled`, the draft's logits are not kept: they decide nothing.
    """

    batch: int
    proposals: int
    sampled: bool

    @property
    def rows(self) -> int:
        """Of the target, and the most that a round adds to a sequence."""
        return self.proposals + 1


class Rounds:
    """The graphs that take the sequences on a device from round to round."""

    def __init__(
        self,
        device: Device,
        target: DeviceModel,
        draft: DeviceModel | None = None,
        *,
        shares_cache: bool = False,
        seconds: float = 60.0,
    ) -> None:
        """A draft that `shares_cache` has nothing to catch up with; a wait ends after `seconds`.

        Raises EngineError where the models do not go together.
        """
        self.state = RoundState(device, target, draft, shares_cache=shares_cache, seconds=seconds)
        self._device, self._target, self._draft = device, target, draft
        self.logits_type: LogitsType = _logits_type(target)
        self._graphs: dict[Kind, Graph] = {}
        self.cached = CachedRows(self.state)
        self.failed = False  # since when nothing here is what it should be
        if draft:
            _check_pair(target, draft)

    def launch(self, kind: Kind) -> Round:
        """Enqueue a round. The one that was `AHEAD` before it must have been read.

        A draft with its own cache catches up with one row: behind a plain round, only plain ones.
        """
        graph = self._graphs.get(kind) or self.prepare(kind)
        graph.replay()
        return self.state.enqueued(kind.batch, kind.rows)

    def result(self, launched: Round) -> list[list[int]]:
        """See `RoundState.result`."""
        return self.state.result(launched)

    def prepare(self, kind: Kind) -> Graph:
        """Have the graph of a kind. There must be room for its rows behind the committed ones."""
        if kind not in self._graphs:
            self.arrange(kind)
            # Libraries settle in at the first call of a size; within a capture that would fail.
            contexts = [model.warm_up(kind.batch, rows) for model, rows in self._calls(kind)]
            self.state.settle("warming up")
            if not all(context.capturable for context in contexts):
                raise EngineError(
                    f"{self._device.name}: these plans cannot be captured into a graph; "
                    "build the artifact again with this version"
                )
            self._graphs[kind] = self._device.capture(lambda: self._record(kind))
        return self._graphs[kind]

    def arrange(self, kind: Kind) -> None:
        """Enqueue the trees of a kind: chains, of which the target is given the root alone."""
        for model, rows in self._calls(kind):
            model.put("parents", np.tile(np.arange(-1, rows - 1), kind.batch), rows)
            given = 1 if model is self._target else rows
            model.put("given", np.full(kind.batch, given, np.int64), rows)

    def reset(self) -> None:
        """Forget graphs and state after a failure."""
        self.close()
        self.state.clear()
        self.cached.drop(0)
        self.failed = False

    def close(self) -> None:
        """Give the graphs back."""
        for graph in self._graphs.values():
            graph.close()
        self._graphs.clear()

    def _record(self, kind: Kind) -> None:
        """Everything that a round enqueues, in order."""
        batch, rows, addresses = kind.batch, kind.rows, self.state.addresses(kind.rows)
        with self._device.range("draft"):
            for step in range(kind.proposals):
                self._launch(draft_step_launches(batch, step, rows, addresses))
                self._draft_step(kind, step, addresses)
            self._launch(draft_step_launches(batch, kind.proposals, rows, addresses))
        with self._device.range("target"):
            self._target.enqueue(batch, rows)
        with self._device.range("commit"):
            self._launch(commit_launches(batch, rows, AHEAD, addresses))

    def _draft_step(self, kind: Kind, step: int, addresses: Mapping[str, int]) -> None:
        draft, rows = self._drafter(), self._draft_rows(step)
        draft.enqueue(kind.batch, rows)
        if kind.sampled and "draft_logits" in addresses:
            sizes = kind.batch, step, rows, kind.rows, draft.vocabulary
            self._launch(keep_logits_launches(self.logits_type, *sizes, addresses))

    def _draft_rows(self, step: int) -> int:
        # A last proposal that stood was never the draft's input, but now is a row of the sequence.
        return 2 if step == 0 and not self.state.shares_cache else 1

    def _calls(self, kind: Kind) -> list[tuple[DeviceModel, int]]:
        """The sizes of call that a kind consists of."""
        steps = {self._draft_rows(step) for step in range(kind.proposals)}
        return [(self._target, kind.rows), *((self._drafter(), rows) for rows in sorted(steps))]

    def _drafter(self) -> DeviceModel:
        if self._draft is None:
            raise ValueError("there is no draft for a round with proposals")
        return self._draft

    def _launch(self, launches: Iterable[Launch]) -> None:
        for launch in launches:
            self._device.launch(launch)


def _check_pair(target: DeviceModel, draft: DeviceModel) -> None:
    wanted = target.tensors.get("draft_logits", target.tensors["logits"])
    found = draft.tensors["logits"]
    if (wanted.dtype, wanted.shape[2]) != (found.dtype, found.shape[2]):
        raise EngineError(
            f"the draft's logits are {found.shape[2]} x {found.dtype}, the target's plan takes "
            f"{wanted.shape[2]} x {wanted.dtype}; build both again, together"
        )


def _logits_type(model: DeviceModel) -> LogitsType:
    dtype: DType = model.tensors["logits"].dtype
    if dtype in ("float32", "float16", "bfloat16"):
        return dtype
    raise EngineError(f"the target's logits are {dtype}; build its plan again")
