"""Who owns which page of a key-value cache, and which page is written over next."""

from __future__ import annotations

from speccompile.runtime.errors import NoRoomError
from speccompile.runtime.pages.queue import PageQueue

__all__ = ["PagePool"]


class PagePool:
    """Counts the owners of `pages` pages of `page_rows` rows; an engine has their memory.

    A page without an owner is free, but what it holds stays known by its key until it is taken:
    first those that nobody knows, then the one released longest ago. No call but `take`, which
    returns a list, makes anything new: what the pool needs is there from the start.
    """

    def __init__(self, pages: int, page_rows: int) -> None:
        if pages < 1 or page_rows < 1:
            raise ValueError(f"a pool cannot have {pages} pages of {page_rows} rows")
        self.pages = pages
        self.page_rows = page_rows
        self._owners = [0] * pages
        self._keys: list[bytes | None] = [None] * pages
        self._known: dict[bytes, int] = {}
        self._free = PageQueue(pages)
        for page in range(pages):
            self._free.add_last(page)

    @property
    def free(self) -> int:
        """Pages that `take` can give, whether their content is known or not."""
        return len(self._free)

    def owners(self, page: int) -> int:
        return self._owners[page]

    def key(self, page: int) -> bytes | None:
        """What `page` is known to hold."""
        return self._keys[page]

    def take(self, count: int) -> list[int]:
        """`count` pages for one owner, who may write them. Raises NoRoomError, all or none."""
        if count > self.free:
            raise NoRoomError(
                f"the sequence needs {count} more pages of {self.page_rows} rows and {self.free} "
                f"of {self.pages} are free; end another sequence, or open a larger pool"
            )
        return [self._take() for _ in range(count)]

    def share(self, page: int) -> None:
        """Another owner for `page`, which is owned or known."""
        if not self._owners[page]:
            self._free.remove(page)
        self._owners[page] += 1

    def release(self, page: int) -> None:
        """One owner less."""
        if not self._owners[page]:
            raise ValueError(f"page {page} has no owner")
        self._owners[page] -= 1
        if not self._owners[page]:
            if self._keys[page] is None:
                self._free.add_first(page)
            else:
                self._free.add_last(page)

    def learn(self, page: int, key: bytes) -> int:
        """Make the content of `page` known; returns the page that is known by `key`, the first."""
        known = self._known.setdefault(key, page)
        if known == page:
            self._keys[page] = key
        return known

    def find(self, key: bytes) -> int | None:
        """The page that is known to hold `key`."""
        return self._known.get(key)

    def forget(self, page: int) -> None:
        """The content of `page` is about to change."""
        key = self._keys[page]
        if key is not None:
            del self._known[key]
            self._keys[page] = None

    def _take(self) -> int:
        page = self._free.take_first()
        self.forget(page)
        self._owners[page] = 1
        return page
