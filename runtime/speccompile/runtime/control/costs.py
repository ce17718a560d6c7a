"""What a round costs here and now: the artifact's tables, corrected by the rounds that were run."""

from __future__ import annotations

from collections import deque
from statistics import median

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.control.controller import Outcome
from speccompile.runtime.control.rowcosts import MOST_ROWS, RowCosts
from speccompile.runtime.costmodel import Costs, step_ms

__all__ = ["RoundCosts"]

_RECENT = 15  # rounds whose median is the draft's pace: half of them may be outliers
_GIVEN = 3  # rounds that a table is worth at first


class RoundCosts:
    """Seconds of a round by the depth and the rows of its proposal.

    What is neither the draft's engine nor the target's (sampling, verification, copies) counts as
    the target's: it comes with the rows.
    """

    def __init__(self, target: Costs, draft: Costs, *, shares_cache: bool = True) -> None:
        """Tables in milliseconds by rows; what is not in them is learned.

        A draft that is not one on the target's cache first takes in what the target added.
        """
        self._target = RowCosts(target)
        step, first = step_ms(draft, 1), step_ms(draft, 1 if shares_cache else 2)
        self._step, self._first = (step / 1e3, first / 1e3) if draft else (1.0, 1.0)
        self._is_measured = bool(draft)
        self._paces: deque[float] = deque(maxlen=_RECENT)

    def step(self, rows: int) -> float:
        """Seconds of a target's step and what a round has around it; 0 where nothing is known."""
        return float(self._target.seconds[min(rows, MOST_ROWS)])

    def drafting(self, depth: int) -> float:
        """Seconds of the draft's steps for so many levels."""
        return self._pace * (self._first + (depth - 1) * self._step) if depth else 0.0

    def rounds(self, deepest: int, again: int = 0) -> NDArray[np.float64]:
        """Seconds [deepest + 1] of rounds with a chain of each depth from 0 (plain), never falling.

        `again` rows are only fed again.
        """
        seconds = self._target.seconds[again + 1 : again + deepest + 2].copy()
        seconds[1:] += self._pace * (self._first + self._step * np.arange(float(deepest)))
        return seconds

    @property
    def _pace(self) -> float:
        """Measured seconds of the draft's steps over the table's. Where they are not known yet, a
        machine that is faster or slower than the one of the table is so for both models."""
        if not self._is_measured:
            return median(self._paces) if self._paces else 0.0
        given = [self._target.pace] * (_GIVEN - len(self._paces))
        return median([*given, *self._paces])

    @property
    def doubt(self) -> float:
        """How badly it is known what a plain step costs, compared to the last round's: the standard
        deviation of its logarithm."""
        return self._target.uncertainty(1)

    def learn(self, outcome: Outcome) -> None:
        """Take a round's seconds into account."""
        levels = max(outcome.proposal.depths())
        if levels and outcome.draft_seconds > 0:
            expected = self._first + (levels - 1) * self._step
            self._paces.append(outcome.draft_seconds / expected)
        rest = outcome.seconds - outcome.draft_seconds
        if rest > 0 and 0 < outcome.rows <= MOST_ROWS:
            self._target.learn(outcome.rows, rest)
