"""What all engines share: a position in a cache. Commit and roll-back of a chain are no more."""

from __future__ import annotations

from speccompile.runtime.errors import RequestError

__all__ = ["Cursor"]


class Cursor:
    """Counts the rows in a cache of `capacity` slots; engines build on it.

    They add to `computing_seconds` the time for which the library itself ran a step.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.length = 0
        self.computing_seconds = 0.0

    @property
    def takes_trees(self) -> bool:
        return True

    def reserve(self, rows: int) -> int:
        """The first slot for `rows` more rows; refuses what the cache cannot hold."""
        if rows < 1:
            raise RequestError("a step needs at least one row")
        if self.length + rows > self.capacity:
            raise RequestError(
                f"{self.length} + {rows} tokens pass the context of {self.capacity}; "
                "shorten the prompt, or build with a larger context.length"
            )
        return self.length

    def adopt(self, length: int) -> None:
        """Take the first `length` rows of a shared cache as they are: its owner wrote them."""
        if not 0 <= length <= self.capacity:
            raise ValueError(f"a cache of {self.capacity} slots cannot hold {length} rows")
        self.length = length

    def rollback(self, length: int) -> None:
        """Keep the first `length` rows."""
        if not 0 <= length <= self.length:
            raise ValueError(f"cannot roll back from {self.length} to {length} rows")
        self.length = length
