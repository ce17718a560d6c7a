"""An engine runs one model over one sequence: rows in, logits out, roll back by index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.errors import RequestError

__all__ = ["PREFILL_ROWS", "CacheSharer", "Encoder", "Engine", "Logits", "prefill"]

Logits = NDArray[np.float32]

PREFILL_ROWS = 128
"""Prompt rows per call: enough for the matrix products, and what a layer holds of them stays
small."""


class Engine(Protocol):
    """One model with its key-value cache, whose first `length` slots hold committed rows."""

    @property
    def capacity(self) -> int:
        """Cache slots: the longest sequence."""
        ...

    @property
    def length(self) -> int:
        """Rows in the cache."""
        ...

    @property
    def takes_trees(self) -> bool:
        """Whether a step may have `parents` that are no chain."""
        ...

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        """Append `tokens` as rows and return their logits, [N, V], or those of the `last` rows.

        Each row follows the one before it, or, in a tree, row i the row ``parents[i]`` < i of this
        step, and the committed ones where that is -1. A row sees the committed rows, its ancestors
        and itself, and its position is the number of rows that it sees, less one. Its cache slot is
        the next one, whatever its parent: of a tree, only rows that come first and follow one
        another may stay (`rollback`); the others' tokens are fed again.
        The head is computed for the `last` rows only, 1 to N. The array is the engine's own memory:
        it is overwritten by the next step.
        Raises EngineError where the engine fails, RequestError where the cache is full.
        """
        ...

    def rollback(self, length: int) -> None:
        """Forget every row from `length` on. Nothing is copied: the slots are written again."""
        ...


@runtime_checkable
class CacheSharer(Engine, Protocol):
    """An engine that may work on the cache of another."""

    def adopt(self, length: int) -> None:
        """Take the first `length` rows of the cache as they are: its owner wrote them."""
        ...


class Encoder(Protocol):
    """What reads the source of engines whose rows attend to one: those that were opened with it."""

    @property
    def calls(self) -> int:
        """How often it has run."""
        ...

    def read(self, source: Sequence[int]) -> None:
        """Run once; every row of a later step attends to `source`. Rows before it that are in a
        cache stay what they were: a sequence begins anew. Raises EngineError."""
        ...


def prefill(engine: Engine, tokens: Sequence[int]) -> Logits:
    """Append a prompt in chunks; returns the logits of its last row, [V]."""
    last: Logits | None = None
    for start in range(0, len(tokens), PREFILL_ROWS):
        last = engine.step(tokens[start : start + PREFILL_ROWS], last=1)[0]
    if last is None:
        raise RequestError("the prompt is empty; give it at least one token")
    return last
