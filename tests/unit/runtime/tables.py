"""Models without a network: tables of logits behind the `Engine` protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.engine import Logits
from speccompile.runtime.engines.cursor import Cursor

__all__ = ["VOCABULARY", "Step", "Table", "TableEngine", "greedy_ids", "make_table", "near_table"]

VOCABULARY = 8
_BEFORE = VOCABULARY  # stands for the token before the first
_FORGOTTEN = -1  # what a rolled-back slot holds: no table has a row for it

Table = NDArray[np.float32]
"""Logits by the last two tokens, [V + 1, V, V]; the first index may be "before the text"."""


class Step(NamedTuple):
    """One call of an engine: the slot of its first row, and its rows."""

    start: int
    tokens: tuple[int, ...]


class TableEngine:
    """A row's logits are a fixed function of its token and the one before, read from the cache.

    Misuse shows: a slot past `length` is never read, the array of an earlier step turns to NaN at
    the next one, and every step is recorded.
    """

    def __init__(self, table: Table, capacity: int = 64) -> None:
        self._table = table
        self._cursor = Cursor(capacity)
        self._slots = [_FORGOTTEN] * capacity
        self._logits: Logits = np.empty((0, VOCABULARY), np.float32)
        self.steps: list[Step] = []

    @property
    def capacity(self) -> int:
        return self._cursor.capacity

    @property
    def length(self) -> int:
        return self._cursor.length

    @property
    def takes_trees(self) -> bool:
        return True

    @property
    def rows(self) -> list[int]:
        """The tokens in the cache."""
        return self._slots[: self.length]

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        start = self._cursor.reserve(len(tokens))
        end = start + len(tokens)
        self._slots[start:end] = tokens
        self._cursor.length = end
        self.steps.append(Step(start, tuple(tokens)))
        self._logits.fill(np.nan)
        if parents is None:
            parents = range(-1, len(tokens) - 1)
        assert all(parent < row for row, parent in enumerate(parents))
        wanted = range(len(tokens) - (last or len(tokens)), len(tokens))
        before = [start + parents[row] if parents[row] >= 0 else start - 1 for row in wanted]
        self._logits = np.stack(
            [self._row(start + row, slot) for row, slot in zip(wanted, before, strict=True)]
        )
        return self._logits

    def rollback(self, length: int) -> None:
        dropped = self.length - length
        self._cursor.rollback(length)
        self._slots[length : length + dropped] = [_FORGOTTEN] * dropped

    def _row(self, slot: int, ahead: int) -> Logits:
        """Of the token in a slot that follows the one in `ahead`, -1 where there is none."""
        before = self._slots[ahead] if ahead >= 0 else _BEFORE
        token = self._slots[slot]
        assert before != _FORGOTTEN, f"slot {ahead} is read after it was rolled back"
        assert 0 <= token < VOCABULARY, f"token {token} is not in the vocabulary"
        row: Logits = self._table[before, token]
        return row


def make_table(seed: int, *, spread: float = 2.0) -> Table:
    """Pseudo-random logits with standard deviation `spread`."""
    rng = np.random.default_rng(seed)
    return rng.normal(0.0, spread, (VOCABULARY + 1, VOCABULARY, VOCABULARY)).astype(np.float32)


def near_table(table: Table, seed: int, *, noise: float = 1.0) -> Table:
    """A draft of `table`: often, but not always, of its opinion."""
    return table + make_table(seed, spread=noise)


def greedy_ids(table: Table, prompt: Iterable[int], count: int) -> list[int]:
    """Plain greedy decoding, without anything that is under test."""
    tokens = [_BEFORE, *prompt]
    for _ in range(count):
        tokens.append(int(table[tokens[-2], tokens[-1]].argmax()))
    return tokens[len(tokens) - count :]
