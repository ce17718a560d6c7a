"""Where a second guess beside a path's token is worth a row of its own."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.control.survival import Trial

__all__ = ["Siblings"]

_PRIOR = 0.3  # of a draft's second guess, where its first fell
_WORTH = 8.0
_MEMORY = 1 - 1 / 100


class Siblings:
    """Learns how often a second guess stands where the first fell, and puts them where it pays."""

    def __init__(self) -> None:
        self._stood, self._tested = _PRIOR * _WORTH, _WORTH

    def learn(self, trial: Trial) -> None:
        """A round is over."""
        if trial.rescued is not None:
            self._stood = _MEMORY * self._stood + trial.rescued
            self._tested = _MEMORY * self._tested + 1.0

    def levels(
        self, ahead: NDArray[np.float64], rows: int, price: Callable[[int], float]
    ) -> frozenset[int]:
        """Those of the path's nodes, the root's 0 first, that should get a second child.

        `ahead` is `Survival.ahead` as far as the path goes; `rows` is what the step has without
        them, and `price(rows)` how probable one more must be. A second guess is heard where the
        path stood so far and its next token fell.
        """
        heard = -np.diff(ahead, prepend=1.0) * self._stood / self._tested
        levels: set[int] = set()
        for level in np.argsort(-heard, kind="stable").tolist():
            if heard[level] <= price(rows + len(levels)):
                break
            levels.add(level)
        return frozenset(levels)
