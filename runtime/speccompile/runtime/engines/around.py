"""What an engine around another has of it as it is."""

from __future__ import annotations

from typing import Generic, TypeVar

from speccompile.runtime.engine import Engine
from speccompile.runtime.engines.cursor import Cursor

__all__ = ["AroundEngine", "computing_seconds"]

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


def computing_seconds(engine: Engine) -> float | None:
    """How long the library under an engine has computed so far, without what prepares its inputs;
    None where nobody keeps account of it."""
    while isinstance(engine, AroundEngine):
        engine = engine.engine
    return engine.computing_seconds if isinstance(engine, Cursor) else None
