"""How far a student's greedy proposals would stand, from which of its first choices were right.

A chain is right up to its first mistake, and up to there it stands behind the target's own text. So
one pass over that text tells of chains of any length from any place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["DEPTH", "Acceptance", "Point", "acceptance"]

DEPTH = 4
"""Of the chains whose acceptance is told while a draft is made."""


@dataclass(frozen=True)
class Acceptance:
    """Of rounds of chains of one length: how often position i stood, of those before which all
    stood, and tokens a round, the target's own included."""

    positions: tuple[float, ...]
    tokens_a_round: float


@dataclass(frozen=True)
class Point:
    """Of a training's curve: after so many tokens, the mean loss and overlap since the last point,
    and how far chains of `DEPTH` stand on held-out texts."""

    tokens: int
    seconds: float
    loss: float
    overlap: float
    positions: Sequence[float]
    tokens_a_round: float


def acceptance(right: Iterable[NDArray[np.bool_]], depth: int) -> Acceptance:
    """Decode texts with chains of `depth`: `right` [n] of each says which tokens the student would
    have proposed, or [n, depth] as which token of a chain. The first token of a text is the
    prompt's, and no round proposes it."""
    tested, stood = np.zeros(depth, np.int64), np.zeros(depth, np.int64)
    rounds = tokens = 0
    for text in right:
        place = 1
        while place < len(text):
            chain = text[place : place + depth]
            accepted = _run((chain.diagonal() if chain.ndim == 2 else chain).tolist())
            stood[:accepted] += 1
            tested[: min(accepted + 1, depth, len(text) - place)] += 1
            rounds += 1
            tokens += min(accepted + 1, len(text) - place)
            place += accepted + 1
    shares = np.divide(stood, tested, out=np.zeros(depth), where=tested > 0)
    return Acceptance(tuple(shares.tolist()), tokens / max(rounds, 1))


def _run(right: Sequence[bool]) -> int:
    return next((place for place, each in enumerate(right) if not each), len(right))
