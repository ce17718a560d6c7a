"""Free pages in the order in which they are taken: a doubly linked list in two arrays."""

from __future__ import annotations

__all__ = ["PageQueue"]


class PageQueue:
    """Some of the pages 0 to `pages` - 1, each at most once; every operation takes the same time.

    The list is a ring through one more place, `pages`, that stands before the first and behind the
    last page.
    """

    def __init__(self, pages: int) -> None:
        self._end = pages
        self._next = [pages] * (pages + 1)
        self._previous = [pages] * (pages + 1)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add_first(self, page: int) -> None:
        self._insert(page, self._end)

    def add_last(self, page: int) -> None:
        self._insert(page, self._previous[self._end])

    def take_first(self) -> int:
        """Raises IndexError where there is none."""
        page = self._next[self._end]
        if page == self._end:
            raise IndexError("no page is left")
        self.remove(page)
        return page

    def remove(self, page: int) -> None:
        before, behind = self._previous[page], self._next[page]
        self._next[before], self._previous[behind] = behind, before
        self._length -= 1

    def _insert(self, page: int, before: int) -> None:
        behind = self._next[before]
        self._previous[page], self._next[page] = before, behind
        self._next[before] = self._previous[behind] = page
        self._length += 1
