"""Whether proposals stand as often as the laws say: a martingale over a stream of decisions."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["Acceptance"]


@dataclass
class Acceptance:
    """Counts decisions, each with the probability that it had before anything was drawn for it.

    Given all before it, a decision that falls with probability b has the mean b and the variance
    b (1 - b): the sum of the deviations over the root of the sum of the variances is nearly normal.
    """

    tested: int = 0
    accepted: int = 0
    expected: float = 0.0
    variance: float = 0.0

    def add(self, probability: float, accepted: bool) -> None:
        self.tested += 1
        self.accepted += accepted
        self.expected += probability
        self.variance += probability * (1.0 - probability)

    @property
    def z(self) -> float:
        """Standard deviations by which more stood than should have."""
        return (self.accepted - self.expected) / math.sqrt(max(self.variance, 1.0))

    def state(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def of(cls, state: Mapping[str, Any]) -> Acceptance:
        return cls(**state)
