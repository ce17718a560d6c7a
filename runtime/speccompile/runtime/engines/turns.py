"""Several sequences on engines of one sequence each, which take turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from speccompile.runtime.batch_engine import Rows
from speccompile.runtime.engine import Engine, Logits
from speccompile.runtime.engines.around import AroundEngine

__all__ = ["OwnEngine", "TurnsEngine"]


class TurnsEngine:
    """A `BatchEngine` for graphs that cannot compute rows of several sequences in one call.

    Every sequence has an engine, and so caches, of its own; engines of ended ones are used again.
    """

    def __init__(self, first: Engine, another: Callable[[], Engine]) -> None:
        """`another` makes an engine like the `first`, best of the same weights."""
        self.capacity = first.capacity
        self._another = another
        self._idle = [first]

    def open(self, prompt: Sequence[int] = ()) -> OwnEngine:
        """A sequence without rows: an engine does not know which tokens its old ones are of."""
        engine = self._idle.pop() if self._idle else self._another()
        engine.rollback(0)
        return OwnEngine(engine, self._idle)

    def step_many(self, requests: Sequence[Rows[OwnEngine]]) -> list[Logits]:
        """See `BatchEngine`; as many calls as there are sequences."""
        if len({id(request.sequence) for request in requests}) < len(requests):
            raise ValueError("a sequence takes part in a call once")
        lengths = [request.sequence.length for request in requests]
        try:
            return [
                request.sequence.step(request.tokens, parents=request.parents, last=request.last)
                for request in requests
            ]
        except BaseException:  # an interrupt too leaves every sequence as it was
            for request, length in zip(requests, lengths, strict=True):
                request.sequence.rollback(length)
            raise


class OwnEngine(AroundEngine[Engine]):
    """A sequence that has an engine to itself until it is closed."""

    def __init__(self, engine: Engine, idle: list[Engine]) -> None:
        """The engine goes to the `idle` ones at the end."""
        super().__init__(engine)
        self._idle = idle

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        return self.engine.step(tokens, parents=parents, last=last)

    def close(self) -> None:
        self._idle.append(self.engine)
