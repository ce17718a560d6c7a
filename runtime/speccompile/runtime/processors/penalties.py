"""Penalties for what has been said: of the whole sequence, or of the output alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.engine import Logits
from speccompile.runtime.processors.checks import require_within
from speccompile.runtime.processors.trail import Trail

__all__ = ["OutputPenalty", "RepetitionPenalty"]


@dataclass
class RepetitionPenalty:
    """Hugging Face's: a token of the prompt or the output has its logit divided by `penalty` where
    that is positive, and multiplied by it where it is not. 1 changes nothing; 0.01 to 100.
    """

    penalty: float
    _counts: _Counts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_within("repetition_penalty", self.penalty, 0.01, 100.0)
        self._counts = _Counts()

    def apply(self, logits: Logits, tokens: Sequence[int]) -> None:
        seen, _ = self._counts.of(tokens)
        values, penalty = logits[seen], np.float32(self.penalty)
        logits[seen] = np.where(values < 0, values * penalty, values / penalty)


@dataclass
class OutputPenalty:
    """OpenAI's: a token that stands n times in what follows the prompt loses ``presence`` and
    n times ``frequency`` from its logit. Both are from -2 to 2.
    """

    prompt_length: int
    presence: float = 0.0
    frequency: float = 0.0
    _counts: _Counts = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        require_within("presence_penalty", self.presence, -2.0, 2.0)
        require_within("frequency_penalty", self.frequency, -2.0, 2.0)
        self._counts = _Counts(self.prompt_length)

    def apply(self, logits: Logits, tokens: Sequence[int]) -> None:
        seen, times = self._counts.of(tokens)
        logits[seen] -= np.float32(self.frequency) * times + np.float32(self.presence)


class _Counts:
    """How often each token stands in a sequence, from position `start` on.

    Counts of the last sequence are kept, and changed by what the next one lacks and adds: the same
    numbers as counting anew, whatever the sequences and their order.
    """

    def __init__(self, start: int = 0) -> None:
        self._trail = Trail(start)
        self._counts: Counter[int] = Counter()

    def of(self, tokens: Sequence[int]) -> tuple[NDArray[np.intp], NDArray[np.float32]]:
        """The different tokens of a sequence, in no order, and how often each is there."""
        change = self._trail.follow(tokens)
        self._counts.update(change.added)
        for token in change.removed:
            if self._counts[token] == 1:
                del self._counts[token]
            else:
                self._counts[token] -= 1
        number = len(self._counts)
        seen = np.fromiter(self._counts.keys(), np.intp, number)
        return seen, np.fromiter(self._counts.values(), np.float32, number)
