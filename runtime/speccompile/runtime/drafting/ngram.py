"""Draft by looking up how the last few tokens went on before (prompt lookup); costs no model."""

from __future__ import annotations

from collections.abc import Sequence

from speccompile.runtime.drafting.certain import certain
from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.metered import Work
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.trees.prefix import merge

__all__ = ["NgramDraft"]

_CONTINUATIONS = 3  # kept of an n-gram: the latest that begin with different tokens


class NgramDraft:
    """Proposes what followed the latest earlier occurrence of the longest matching ending.

    Endings of `longest` down to `shortest` tokens are tried. Where a tree may have more nodes than
    levels, the latest other continuations of the same ending stand beside the first. The index maps
    each n-gram to where it was last followed by something, so that a look-up does not depend on the
    length of the text.
    """

    name = "ngram"

    def __init__(self, *, longest: int = 4, shortest: int = 2) -> None:
        self._sizes = range(longest, shortest - 1, -1)
        self._ends: dict[tuple[int, ...], list[int]] = {}
        self._indexed = 0

    @property
    def work(self) -> Work:
        return Work()

    def start(self, prompt: Sequence[int]) -> None:
        self._ends.clear()
        self._indexed = 0

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        self._index(tokens)
        ends = self._longest_match(tokens)
        if effort.nodes <= effort.depth:
            ends = ends[:1]
        tree = merge([_copied(tokens, end, effort.depth) for end in ends], effort.nodes)
        return certain(tree.tokens, tree.parents, effort)

    def _longest_match(self, tokens: Sequence[int]) -> list[int]:
        """Where the continuations of the text's ending begin, the latest first."""
        for size in self._sizes:
            ends = self._ends.get(tuple(tokens[-size:]))
            if ends is not None:
                return ends
        return []

    def _index(self, tokens: Sequence[int]) -> None:
        """Index every n-gram that has a follower; the text's own ending has none yet."""
        for end in range(max(self._indexed, 1), len(tokens)):
            for size in self._sizes:
                if size <= end:
                    ends = self._ends.setdefault(tuple(tokens[end - size : end]), [])
                    ends[:] = [end, *(other for other in ends if tokens[other] != tokens[end])]
                    del ends[_CONTINUATIONS:]
        self._indexed = max(len(tokens), 1)


def _copied(tokens: Sequence[int], start: int, count: int) -> list[int]:
    """How the text went on from `start`; beyond its end, as the loop that it then is."""
    period = len(tokens) - start
    return [tokens[start + index % period] for index in range(count)]
