"""What the caches of a device hold, and bringing them to a prompt in calls of few sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from speccompile.plugins.launches import Launch, commit_launches, uniforms_launches
from speccompile.plugins.schema import INVALID
from speccompile.runtime.device_model import DeviceModel, pieces
from speccompile.runtime.round_state import AHEAD, RoundState

__all__ = ["CachedRows"]

_STEP = 8  # from one size of call to the next: a new size costs set-up, padding costs arithmetic


class CachedRows:
    """The tokens whose rows are in the caches, of one sequence.

    `tokens` are those of the target's cache; of these, the first `drafted` have rows in that of a
    draft with its own.
    """

    def __init__(self, state: RoundState) -> None:
        self._state = state
        self._warm = False
        self.tokens: list[int] = []
        self.drafted = 0

    def warm_up(self) -> None:
        """Have every size of call once, before it would delay a request; overwrites the caches."""
        if self._warm:
            return
        for model in self._state.models:
            for width in _widths(model):
                model.feed([0] * width, width, 0)
                model.enqueue(1, width)
                self._state.settle("warming up")
        self._warm = True

    def keep(self, prompt: Sequence[int]) -> int:
        """Drop the rows that are not those of `prompt`, and its last, which has to be asked.

        Returns how many are kept.
        """
        shared = 0
        for cached, token in zip(self.tokens, prompt[:-1], strict=False):
            if cached != token:
                break
            shared += 1
        self.drop(shared)
        return shared

    def read(self, prompt: Sequence[int]) -> int:
        """Have the target read the rest of `prompt`; returns the token that follows it."""
        state, following = self._state, INVALID
        for rows, width in _calls(state.target, len(self.tokens), len(prompt)):
            start = len(self.tokens)
            addresses = state.addresses(width)
            with state.device.range("prompt"):
                state.target.feed(prompt[start : start + rows], width, start)
                self._launch(uniforms_launches(1, width, addresses))
                state.target.enqueue(1, width)
                self._launch(commit_launches(1, width, AHEAD, addresses))
            [[following]] = state.result(state.enqueued(1, width))
            self.tokens += prompt[start : start + rows]
        return following

    def read_draft(self) -> None:
        """Have a draft with its own cache read what the target has read."""
        state = self._state
        if state.draft is None or state.shares_cache:
            return
        for rows, width in _calls(state.draft, self.drafted, len(self.tokens)):
            end = self.drafted + rows
            with state.device.range("prompt of the draft"):
                state.draft.feed(self.tokens[self.drafted : end], width, self.drafted)
                state.draft.enqueue(1, width)
            state.settle("the draft's reading of the prompt")
            self.drafted = end

    def commit(self, rows: Sequence[int], proposals: int) -> None:
        """Note the rows that a round with so many proposals left: its root and what stood."""
        if proposals:  # the last of them was not among the draft's inputs
            self.drafted = len(self.tokens) + min(len(rows), proposals)
        self.tokens += rows

    def drop(self, keep: int) -> None:
        """Forget all rows but the first."""
        del self.tokens[keep:]
        self.drafted = min(self.drafted, keep)

    def _launch(self, launches: Iterable[Launch]) -> None:
        for launch in launches:
            self._state.device.launch(launch)


def _calls(model: DeviceModel, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Rows and width of the calls that read slots from `start` to `end`."""
    yield from pieces(end - start, model.capacity - start, _widths(model))


def _widths(model: DeviceModel) -> list[int]:
    most = min(model.rows, model.capacity)
    powers = [_STEP**power for power in range(10) if _STEP**power < most]
    return [*powers, most]
