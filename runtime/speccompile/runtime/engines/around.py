"""What an engine around another has of it as it is."""

from __future__ import annotations

from typing import Generic, TypeVar

from speccompile.runtime.engine import Engine

__all__ = ["AroundEngine"]

E = TypeVar("E", bound=Engine)


class AroundEngine(Generic[E]):
    """All of an `Engine` but its step; those around another build on it."""

    def __init__(self, engine: E) -> None:
        self.engine = engine

    @property
    def capacity(self) -> int:
        return self.engine.capacity

    @property
    def length(self) -> int:
        return self.engine.length

    @property
    def takes_trees(self) -> bool:
        return self.engine.takes_trees

    def rollback(self, length: int) -> None:
        self.engine.rollback(length)
