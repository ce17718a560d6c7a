"""Draft by looking up how the last few tokens went on before (prompt lookup); costs no model."""

from __future__ import annotations

from collections.abc import Sequence

from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.sampling import Randomness, Sampling

__all__ = ["NgramDraft"]


class NgramDraft:
    """Proposes what followed the latest earlier occurrence of the longest matching ending.

    Endings of `longest` down to `shortest` tokens are tried. The index maps each n-gram to where it
    was last followed by something, so that a look-up does not depend on the length of the text.
    """

    def __init__(self, *, longest: int = 4, shortest: int = 2) -> None:
        self._sizes = range(longest, shortest - 1, -1)
        self._ends: dict[tuple[int, ...], int] = {}
        self._indexed = 0

    @property
    def engine_seconds(self) -> float:
        return 0.0

    def start(self, prompt: Sequence[int]) -> None:
        self._ends.clear()
        self._indexed = 0

    def propose(
        self, tokens: Sequence[int], limit: int, sampling: Sampling, randomness: Randomness
    ) -> Proposal:
        self._index(tokens)
        for size in self._sizes:
            end = self._ends.get(tuple(tokens[-size:]))
            if end is not None:
                return Proposal(list(tokens[end : end + limit]))
        return Proposal()

    def _index(self, tokens: Sequence[int]) -> None:
        """Index every n-gram that has a follower; the text's own ending has none yet."""
        for end in range(max(self._indexed, 1), len(tokens)):
            for size in self._sizes:
                if size <= end:
                    self._ends[tuple(tokens[end - size : end])] = end
        self._indexed = len(tokens)
