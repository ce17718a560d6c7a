"""Draft from static lists: identifiers, boilerplate, enumerations; costs no model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from speccompile.runtime.drafting.certain import certain
from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.metered import Work
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.trees.prefix import merge

__all__ = ["WordListDraft"]


@dataclass
class _Beginning:
    """A node of the trie of all entries."""

    longer: dict[int, _Beginning] = field(default_factory=dict[int, "_Beginning"])

    def rests(self) -> Iterator[list[int]]:
        """How entries go on from here, those given first before others."""
        for token, beginning in self.longer.items():
            if not beginning.longer:
                yield [token]
            for rest in beginning.rests():
                yield [token, *rest]


class WordListDraft:
    """Proposes the rest of an entry that the text ends with the beginning of.

    The longest such beginning counts, and it has at least `shortest` tokens. Of entries that begin
    alike, the one given first is proposed; where a tree may have more nodes than levels, the others
    stand beside it.
    """

    name = "words"

    def __init__(self, entries: Iterable[Sequence[int]], *, shortest: int = 2) -> None:
        """`entries` are token ids; those of no more than `shortest` have no rest to propose."""
        self._shortest, self._longest = shortest, 0
        self._root = _Beginning()
        for entry in entries:
            self._longest = max(self._longest, len(entry) - 1)
            beginning = self._root
            for token in entry:
                beginning = beginning.longer.setdefault(token, _Beginning())

    @property
    def work(self) -> Work:
        return Work()

    def start(self, prompt: Sequence[int]) -> None:
        """The lists are the same for every request."""

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        most = 1 if effort.nodes <= effort.depth else effort.nodes
        rests = islice(self._longest_match(tokens).rests(), most)
        tree = merge([rest[: effort.depth] for rest in rests], effort.nodes)
        return certain(tree.tokens, tree.parents, effort)

    def _longest_match(self, tokens: Sequence[int]) -> _Beginning:
        for size in range(min(self._longest, len(tokens)), self._shortest - 1, -1):
            beginning: _Beginning | None = self._root
            for token in tokens[-size:]:
                beginning = beginning.longer.get(token) if beginning else None
            if beginning and beginning.longer:
                return beginning
        return _Beginning()
