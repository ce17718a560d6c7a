"""Several sequences of a table model in one call, on pages that are counted as an engine's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from speccompile.runtime.batch_engine import Rows
from speccompile.runtime.engine import Logits
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.pages.pool import PagePool
from speccompile.runtime.pages.prefixes import recall, remember
from speccompile.runtime.pages.table import PageTable
from tests.unit.runtime.tables import VOCABULARY, Table, TableEngine

__all__ = ["TableBatch", "TableSequence"]

_Failure = Callable[[Sequence[int]], SpeccompileError | None]


class TableBatch:
    """Misuse shows as it does with a `TableEngine`; the rows of every call are recorded.

    `failure` may fail a call by the tokens that one of its sequences is fed.
    """

    def __init__(
        self, table: Table, *, pages: int = 64, page_rows: int = 4, failure: _Failure | None = None
    ) -> None:
        self.capacity = min(64, pages * page_rows)
        self.pool = PagePool(pages, page_rows)
        self.table = table
        self.calls: list[list[int]] = []
        self.opened = 0
        self._failure = failure
        self._answers: list[Logits] = []

    def open(self, prompt: Sequence[int] = ()) -> TableSequence:
        self.opened += 1
        return TableSequence(self, recall(self.pool, prompt[:-1]), prompt)

    def step_many(self, requests: Sequence[Rows[TableSequence]]) -> list[Logits]:
        assert len({id(request.sequence) for request in requests}) == len(requests)
        for answer in self._answers:
            answer.fill(np.nan)
        lengths = [request.sequence.length for request in requests]
        try:
            self._answers = [self._rows(request) for request in requests]
        except SpeccompileError:
            for request, length in zip(requests, lengths, strict=True):
                request.sequence.rollback(length)
            raise
        self.calls.append([len(request.tokens) for request in requests])
        return self._answers

    def _rows(self, request: Rows[TableSequence]) -> Logits:
        if self._failure and (error := self._failure(request.tokens)):
            raise error
        sequence = request.sequence
        sequence.pages.append(len(request.tokens))
        return sequence.engine.step(request.tokens, parents=request.parents, last=request.last)


class TableSequence:
    def __init__(self, batch: TableBatch, pages: PageTable, prompt: Sequence[int]) -> None:
        self.batch, self.pages = batch, pages
        self.engine = TableEngine(batch.table, batch.capacity)
        if pages.length:
            self.engine.step(prompt[: pages.length])

    @property
    def capacity(self) -> int:
        return self.engine.capacity

    @property
    def takes_trees(self) -> bool:
        return True

    @property
    def length(self) -> int:
        return self.engine.length

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        return self.batch.step_many([Rows(self, tokens, parents, last)])[0]

    def rollback(self, length: int) -> None:
        self.engine.rollback(length)
        self.pages.rollback(length)

    def close(self) -> None:
        assert all(0 <= token < VOCABULARY for token in self.engine.rows)
        remember(self.pages, self.engine.rows)
        self.pages.release()
