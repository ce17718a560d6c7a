"""What there is to compare with plain decoding: who drafts, and how much of what shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from speccompile.runtime.control.controller import Controller, FixedController
from speccompile.runtime.drafting.draft import Effort

__all__ = ["Branching", "Variant", "spelled"]


@dataclass(frozen=True)
class Variant:
    """A draft, and what a round may propose: a chain of `depth`, or a tree of `nodes`, if more."""

    draft: str
    depth: int
    nodes: int = 0

    @property
    def is_tree(self) -> bool:
        return self.nodes > self.depth

    def controller(self) -> Controller:
        """One for tokens that follow from what is known, which grow into the likeliest tree."""
        return FixedController(self.depth, max(self.nodes, self.depth))

    def drawing(self) -> Controller:
        """One for tokens that are drawn: two where a tree has room for them."""
        return Branching(self.depth, self.nodes) if self.is_tree else FixedController(self.depth)

    def __str__(self) -> str:
        shape = f"tree of {self.nodes}, {self.depth} deep" if self.is_tree else f"{self.depth}"
        return f"{self.draft} draft of {shape}"


@dataclass(frozen=True)
class Branching:
    """Two children for every node of the first path, as many as fit."""

    depth: int
    nodes: int

    def start(self) -> None:
        """Nothing to begin with."""

    def effort(self, room: int) -> Effort | None:
        depth = min(self.depth, room)
        if depth < 1:
            return None
        return Effort(depth, self.nodes, branches=dict.fromkeys(range(depth), 2))

    def learn(self, outcome: object) -> None:
        """Nothing to learn."""


def spelled(numbers: Sequence[int]) -> str:
    """1-8 for all from 1 to 8, otherwise a list."""
    whole = list(numbers) == list(range(numbers[0], numbers[-1] + 1)) and len(numbers) > 1
    return f"{numbers[0]}-{numbers[-1]}" if whole else ", ".join(map(str, numbers))
