"""What a step costs by its rows: a table, corrected by what is measured while it is served.

The logarithm of the measured over the table's seconds is modelled as a pace, common to all row
counts, and a deviation of each, like those of near counts: a Gaussian process, followed by a
Kalman filter, since a machine changes. So a measurement moves every count as far as it speaks for
it, and how well each is known is known too: that all steps became slower looks just like some that
cost more than the table says, until others are measured.
"""

from __future__ import annotations

from math import log, sqrt

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.costmodel import Costs, step_ms

__all__ = ["MOST_ROWS", "RowCosts"]

MOST_ROWS = 80
"""Of a step: the 64 of the largest tree, and what is fed again."""

# Standard deviations of logarithms.
_PACE = 0.3  # served steps are slower than isolated ones
_SHAPE = 0.2  # of a table that was measured on another day
_SHAPE_UNMEASURED = 0.5
_PACE_CHANGE = 0.04  # a round
_SHAPE_CHANGE = 0.003  # a round: the context grows
_NOISE = 0.15  # of one measurement
_SUSPECT = log(1.5)  # a surprise that one measurement alone does not prove

_SHARED = 16.0  # rows cost what all share, where there is no table: a guess, to be corrected


class RowCosts:
    """Seconds of a step by its number of rows, 0 where nothing is known yet."""

    def __init__(self, table: Costs) -> None:
        """`table` has milliseconds by rows, and may be empty."""
        self._rows = np.arange(MOST_ROWS + 1.0)
        self._table = np.array([step_ms(table, rows) for rows in range(MOST_ROWS + 1)]) / 1e3
        logarithms = np.log(np.maximum(self._rows, 1.0))
        likeness = np.exp(-0.5 * (logarithms[:, None] - logarithms) ** 2)
        shape = _SHAPE if table else _SHAPE_UNMEASURED
        self._plain = float(self._table[1])
        self._deviation = np.zeros(MOST_ROWS + 1)
        self._last = 1
        self._suspects: dict[int, float] = {}
        self._covariance = _PACE**2 + shape**2 * likeness
        self._change = _PACE_CHANGE**2 + _SHAPE_CHANGE**2 * likeness
        self.seconds: NDArray[np.float64] = np.maximum.accumulate(self._table)
        """By rows, from 0 to MOST_ROWS, never falling."""

    @property
    def pace(self) -> float:
        """Seconds of a plain step over the table's; 1 without a table."""
        return float(self.seconds[1]) / self._plain if self._plain else 1.0

    def uncertainty(self, rows: int) -> float:
        """The standard deviation of the logarithm of what so many rows cost, over what as many as
        were measured last cost."""
        of, last = self._covariance, self._last
        return sqrt(max(0.0, float(of[rows, rows] + of[last, last] - 2.0 * of[rows, last])))

    def learn(self, rows: int, seconds: float) -> None:
        """A step of so many rows took so many seconds."""
        if not self._table[rows]:
            self._table = seconds * (_SHARED + self._rows) / (_SHARED + rows)
        self._last = rows
        self._covariance += self._change
        surprise = self._believed(rows, log(seconds / self._table[rows]) - self._deviation[rows])
        if surprise is not None:
            gain = self._covariance[rows] / (self._covariance[rows, rows] + _NOISE**2)
            self._covariance -= np.outer(gain, self._covariance[rows])
            self._deviation += gain * surprise
        # More rows that seem to cost less are noise, and would be taken for free.
        self.seconds = np.maximum.accumulate(self._table * np.exp(self._deviation))

    def _believed(self, rows: int, surprise: float) -> float | None:
        """A large surprise counts only when one of about as many rows follows it: until then it is
        an outlier, and then the machine has changed."""
        size = rows.bit_length()
        before = self._suspects.pop(size, 0.0)
        if abs(surprise) < _SUSPECT:
            return surprise
        self._suspects[size] = surprise
        if before * surprise <= 0.0:
            return None
        surprise = min(before, surprise, key=abs)
        self._covariance += (surprise / 4.0) ** 2
        return surprise
