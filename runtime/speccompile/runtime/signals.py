"""What a draft knows of a token that it proposes, from its own row."""

from __future__ import annotations

import math
from functools import cached_property

import numpy as np

from speccompile.plugins.laws import largest_but
from speccompile.runtime.engine import Logits

__all__ = ["Signals"]

_LOWEST = np.float32(-1e4)  # minus infinity times a weight of 0 would not be 0


class Signals:
    """Computed when asked for, since a row has a whole vocabulary; all at a temperature of 1.

    Read them before the engine that the row comes from takes its next step.
    """

    def __init__(self, row: Logits, token: int) -> None:
        """Those of a `token`, by the draft's row [V] at its place."""
        self._best = int(row.argmax())
        self._logs, self._token = row - row[self._best], token

    @cached_property
    def first(self) -> float:
        """The largest probability."""
        return 1.0 / self._total

    @cached_property
    def second(self) -> float:
        """The second largest, 0 where there is none."""
        return math.exp(largest_but(self._logs, self._best)) / self._total

    @cached_property
    def probability(self) -> float:
        """That of the token itself."""
        return float(self._weights[self._token]) / self._total

    @cached_property
    def entropy(self) -> float:
        """In nats: the sum of -p log p, with log p = logs - log(total)."""
        # Not as a product of vectors: BLAS would wake threads that then spin beside the engine's.
        terms = np.maximum(self._logs, _LOWEST)
        terms *= self._weights
        return math.log(self._total) - float(terms.sum()) / self._total

    @cached_property
    def _weights(self) -> Logits:
        weights: Logits = np.exp(self._logs)
        return weights

    @cached_property
    def _total(self) -> float:
        return float(self._weights.sum())
