"""The pages of one sequence, in order; a page that others own too is copied before it changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from speccompile.runtime.errors import RequestError
from speccompile.runtime.pages.pool import PagePool

__all__ = ["PageCopy", "PageTable"]


@dataclass(frozen=True)
class PageCopy:
    """The first `rows` rows of page `source` are to be copied to page `target`."""

    source: int
    target: int
    rows: int


class PageTable:
    """Row i of a sequence is row ``i % page_rows`` of page ``pages[i // page_rows]``."""

    def __init__(self, pool: PagePool, pages: Sequence[int] = ()) -> None:
        """A sequence that begins with the rows of `pages`, all full and shared from now on."""
        for page in pages:
            pool.share(page)
        self.pool = pool
        self.pages = list(pages)
        self.length = len(pages) * pool.page_rows

    def append(self, rows: int) -> PageCopy | None:
        """Make room for `rows` more rows. What is returned has to be copied before anything else.

        A copy is asked for where the last page is partly filled and others own it. Raises
        NoRoomError where the pool has too few pages; nothing has changed then.
        """
        if rows < 1:
            raise RequestError("a step needs at least one row")
        pool = self.pool
        filled = self.length % pool.page_rows
        shared = filled > 0 and pool.owners(self.pages[-1]) > 1
        missing = -(-(self.length + rows) // pool.page_rows) - len(self.pages)
        taken = pool.take(missing + shared)
        copy = None
        if shared:
            copy = PageCopy(self.pages[-1], taken.pop(), filled)
            self.exchange(len(self.pages) - 1, copy.target)
        elif filled:
            pool.forget(self.pages[-1])
        self.pages += taken
        self.length += rows
        return copy

    def rollback(self, length: int) -> None:
        """Keep the first `length` rows; pages behind them are given back, the last one first.

        In this order a page is taken before those that it follows: without them, its content is of
        no use to anybody.
        """
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back from {self.length} to {length} rows")
        kept = -(-length // self.pool.page_rows)
        while len(self.pages) > kept:
            self.pool.release(self.pages.pop())
        self.length = length

    def fork(self) -> PageTable:
        """A second sequence with the same rows, in the same pages."""
        other = PageTable(self.pool, self.pages)
        other.length = self.length
        return other

    def release(self) -> None:
        """Give all pages back."""
        self.rollback(0)

    def exchange(self, index: int, page: int) -> None:
        """Take `page`, already this sequence's own, for ``pages[index]``, which is given back."""
        self.pool.release(self.pages[index])
        self.pages[index] = page
