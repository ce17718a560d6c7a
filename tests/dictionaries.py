"""A dictionary of words that are spoken as they are written: small, and learned in seconds."""

from __future__ import annotations

from itertools import product
from pathlib import Path

__all__ = ["write_dictionary"]

_CONSONANTS = {"b": "B", "d": "D", "f": "F", "k": "K", "m": "M", "s": "S"}
_VOWELS = {"a": "AA1", "e": "EH1", "i": "IY1", "o": "OW1"}


def write_dictionary(path: Path, *, more: str = "") -> Path:
    """All words of two syllables of those letters, in the form of CMUdict; then `more` lines."""
    syllables = [(a + b, f"{_CONSONANTS[a]} {_VOWELS[b]}") for a, b in product("bdfkms", "aeio")]
    lines = [f"{a}{b} {x} {y}\n" for (a, x), (b, y) in product(syllables, repeat=2)]
    path.write_text("".join(lines) + more, encoding="utf-8")
    return path
