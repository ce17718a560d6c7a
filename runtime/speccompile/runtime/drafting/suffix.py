"""Draft by the longest ending of the text that occurred before (SuffixDecoding, arXiv 2411.04975).

Unlike an n-gram, a match has any length, and its length says how far to trust it: exact copies of
long passages are proposed whole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from speccompile.runtime.drafting.automaton import SuffixAutomaton
from speccompile.runtime.drafting.certain import certain
from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.metered import Work
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.trees.best_first import Candidate, Node, grow

__all__ = ["SuffixDraft"]


class SuffixDraft:
    """Proposes how the longest match went on most often, at most `factor` times its length.

    Matches begin at `shortest` tokens. A continuation is worth the share of occurrences that went
    on so; nodes worth less than `least` are left out. Where a tree may have more nodes than levels,
    it is that of the likeliest paths, otherwise the likeliest one.

    By default only the text itself is searched. With a `history` the texts of earlier requests are
    too: of more tokens than that, the latest half are kept when the next request begins. What is
    proposed then depends on earlier requests, and with it which tokens are drawn, but not their
    law. The automaton takes some 400 bytes a token.
    """

    name = "suffix"

    def __init__(
        self, *, shortest: int = 2, factor: float = 2.0, least: float = 0.1, history: int = 0
    ) -> None:
        self._shortest, self._factor, self._least = shortest, factor, least
        self._history = history
        self._automaton = SuffixAutomaton()
        self._read: list[int] = []  # all texts, a boundary before each but the first
        self._begin = 0  # of the present one
        self._boundary = 0
        self.matched = 0
        """Tokens of the latest match."""

    @property
    def work(self) -> Work:
        return Work()

    def start(self, prompt: Sequence[int]) -> None:
        present = self._read[self._begin :]
        if list(prompt[: len(present)]) != present:
            self._forget()
        self._catch_up(prompt)

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        self._catch_up(tokens)
        match = self._automaton.repeated
        self.matched = self._automaton.length(match)
        depth = 0
        if self.matched >= self._shortest:
            depth = min(effort.depth, int(self._factor * self.matched))
        tree = grow(
            _Continuations(self._automaton, match, depth, alone=effort.nodes <= effort.depth),
            effort.nodes,
            self._least,
        )
        return certain(tree.tokens, tree.parents, effort)

    def _catch_up(self, tokens: Sequence[int]) -> None:
        for token in tokens[len(self._read) - self._begin :]:
            self._append(token)

    def _forget(self) -> None:
        """Make room for a new text."""
        size = len(self._read)
        kept = size if size <= self._history else self._history // 2
        if kept < size:
            read, self._read = self._read, []
            self._automaton = SuffixAutomaton()
            for token in read[size - kept :]:
                self._append(token)
        if kept:
            self._boundary -= 1
            self._append(self._boundary)
        self._begin = len(self._read)

    def _append(self, token: int) -> None:
        self._automaton.read(token)
        self._read.append(token)


class _Continuations:
    """What `grow` asks for the candidates behind a node."""

    def __init__(self, automaton: SuffixAutomaton, match: int, depth: int, *, alone: bool) -> None:
        self._automaton, self._match, self._depth = automaton, match, depth
        self._most = 1 if alone else None
        self._states: dict[tuple[Node | None, int], int] = {}

    def __call__(self, node: Node) -> Iterator[Candidate]:
        if node.depth == self._depth:
            return
        state = self._states.get((node.parent, node.token), self._match)
        followers = self._automaton.followers(state)
        occurrences = sum(each.times for each in followers)
        for each in followers[: self._most]:
            self._states[node, each.token] = each.state
            yield each.token, each.times / occurrences
