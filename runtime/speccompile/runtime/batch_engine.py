"""An engine of several sequences: their rows are computed together, any number of each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from speccompile.runtime.engine import Engine, Logits

__all__ = ["BatchEngine", "BatchSequence", "Rows"]


class BatchSequence(Engine, Protocol):
    """One of the sequences, an engine by itself."""

    def close(self) -> None:
        """Give back what it holds. It is not to be used again."""
        ...


S = TypeVar("S", bound=BatchSequence)


@dataclass(frozen=True)
class Rows(Generic[S]):
    """What is fed to one sequence in a call; see `Engine.step`."""

    sequence: S
    tokens: Sequence[int]
    parents: Sequence[int] | None = None
    last: int | None = None


class BatchEngine(Protocol[S]):
    """Opens sequences of one model, and steps them together."""

    @property
    def capacity(self) -> int:
        """The longest sequence."""
        ...

    def open(self, prompt: Sequence[int] = ()) -> S:
        """A sequence whose first `length` rows are those of `prompt`, where they are known.

        What is behind them is to be fed, the last token at least. Raises EngineError.
        """
        ...

    def step_many(self, requests: Sequence[Rows[S]]) -> list[Logits]:
        """Append rows to several sequences, each at most once; the logits of each, [N, V].

        A row has the same bits as alone. The arrays are the engine's own memory: the next step of
        any sequence overwrites them. Raises what `Engine.step` raises, and NoRoomError where there
        is no memory for all these rows before another sequence ends; no sequence has changed then.
        """
        ...
