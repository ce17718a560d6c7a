"""What a proof reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

__all__ = ["Check", "Progress", "silent"]

Progress = Callable[[str, int, int], None]
"""Called with the name of a check and how many of how many parts of it are done."""


@dataclass(frozen=True)
class Check:
    """The verdict of one check: a line for people, and the numbers behind it, all of them JSON."""

    name: str
    passed: bool
    summary: str
    details: Mapping[str, object]


def silent(name: str, done: int, total: int) -> None:
    """Report no progress."""
