"""What a draft hands to the verifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.sampling import Randomness, Sampling

__all__ = ["Draft", "Proposal"]


@dataclass
class Proposal:
    """A chain of guessed tokens.

    `laws` holds, for tokens that were drawn, the very distributions [V] they were drawn from; it
    stays empty for tokens that follow from the context alone (greedy, n-gram).
    """

    tokens: list[int] = field(default_factory=list[int])
    laws: list[NDArray[np.float64]] = field(default_factory=list[NDArray[np.float64]])


class Draft(Protocol):
    """Guesses how a sequence goes on."""

    @property
    def engine_seconds(self) -> float:
        """Time spent in an engine since the draft was made."""
        ...

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a request; what is cached of an earlier one with the same beginning may stay."""
        ...

    def propose(
        self, tokens: Sequence[int], limit: int, sampling: Sampling, randomness: Randomness
    ) -> Proposal:
        """At most `limit` tokens to follow `tokens`, which begin with those of the last call."""
        ...
