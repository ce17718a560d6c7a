"""What a draft hands to the verifier: a tree of guesses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from speccompile.plugins.laws import Law

__all__ = ["Proposal"]


@dataclass
class Proposal:
    """A tree behind the root, the last committed token.

    The root is node 0, and the token at index i is node i + 1; ``parents[i]`` is the node that it
    follows, one before it. The children of a node stand in the order in which they are tried. A
    token that was drawn has in `laws` the very distribution [V] it was drawn from, the siblings
    before it taken out where it could not be one of them; one that follows from what is already
    known (greedy, n-grams) has None, which is a distribution too: all on that token. `sources`
    names the drafter of every node where several may have proposed; otherwise it is empty.
    """

    tokens: list[int] = field(default_factory=list[int])
    parents: list[int] = field(default_factory=list[int])
    laws: list[Law | None] = field(default_factory=list["Law | None"])
    sources: list[str] = field(default_factory=list[str])

    @classmethod
    def chain(cls, tokens: Sequence[int]) -> Proposal:
        """Tokens that follow one another, none of them drawn."""
        return cls(list(tokens), list(range(len(tokens))), [None] * len(tokens))

    def add(self, token: int, parent: int, law: Law | None = None, source: str = "") -> int:
        """One more node; returns its number. Either all nodes have a `source` or none."""
        self.tokens.append(token)
        self.parents.append(parent)
        self.laws.append(law)
        if source:
            self.sources.append(source)
        return len(self.tokens)

    @property
    def drawn(self) -> bool:
        """Whether any token was."""
        return any(law is not None for law in self.laws)

    @property
    def is_chain(self) -> bool:
        return self.parents == list(range(len(self.parents)))

    def children(self, node: int) -> list[int]:
        """In the order in which they are tried."""
        return [child for child, parent in enumerate(self.parents, start=1) if parent == node]

    def path(self, node: int) -> list[int]:
        """The tokens from behind the root to a node."""
        tokens: list[int] = []
        while node:
            tokens.append(self.tokens[node - 1])
            node = self.parents[node - 1]
        return tokens[::-1]

    def depths(self) -> list[int]:
        """Of every node, the root's 0 among them."""
        depths = [0]
        for parent in self.parents:
            depths.append(depths[parent] + 1)
        return depths
