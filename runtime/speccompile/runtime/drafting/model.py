"""Draft with a small or quantized model, one token at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from speccompile.runtime.drafting.certain import add_beside
from speccompile.runtime.drafting.draft import Effort, always
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.engine import Engine, Logits, prefill
from speccompile.runtime.metered import MeteredEngine, Work
from speccompile.runtime.sampler import Guess, Sampler
from speccompile.runtime.signals import Signals
from speccompile.runtime.trees.best_first import Candidate, Node, grow

__all__ = ["ModelDraft"]

_WIDTH = 4  # guesses a row: a draft's later choices hardly ever stand


class ModelDraft:
    """Keeps an engine's cache in step with the sequence and asks it for the next tokens.

    It follows its own first choice from token to token. What else its rows hold, other choices of
    the tokens that it has rows for, become leaves beside that path; they cost the draft nothing.
    """

    def __init__(self, engine: Engine, name: str = "model") -> None:
        """`name` tells several of one artifact apart."""
        self.name = name
        self._engine = MeteredEngine(engine)
        self._rows: list[int] = []  # the tokens in the engine's cache
        self._agreed = 0  # how many of them are known to be the sequence's

    @property
    def work(self) -> Work:
        return self._engine.work

    def start(self, prompt: Sequence[int]) -> None:
        self._agreed = 0
        self._synchronize(prompt)

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        feed, path, levels = self._catch_up(tokens), list[int](), list[_Level]()
        growing = _grows(effort, sampler)
        depth = min(effort.depth, effort.nodes, self._engine.capacity - len(tokens) + 1)
        while len(levels) < depth:
            level = len(levels)
            row = self._advance(feed)
            width = _WIDTH if growing else effort.branches.get(level, 1)
            guesses = sampler.guesses(
                row, tokens, path, width, node=level + 1, certain=effort.certain
            )
            if not guesses:
                break
            levels.append(_Level(guesses, sampler.chances(row, guesses) if growing else ()))
            token = guesses[0].token
            path.append(token)
            if effort.go_on is not always and not effort.go_on(Signals(row, token)):
                break
            feed = [token]
        proposal = _grown(levels, effort) if growing else _branched(levels, effort.nodes)
        add_beside(proposal, effort)
        return proposal

    def _advance(self, tokens: list[int]) -> Logits:
        logits = prefill(self._engine, tokens)
        self._rows += tokens
        return logits

    def _catch_up(self, tokens: Sequence[int]) -> list[int]:
        """What the engine has yet to read of `tokens`: their last, and what the target added."""
        self._synchronize(tokens)
        return list(tokens[len(self._rows) :])

    def _synchronize(self, tokens: Sequence[int]) -> None:
        """Drop the rows that are not those of `tokens`, and the last one: it has to be asked."""
        keep = min(_shared(self._rows, tokens, self._agreed), max(len(tokens) - 1, 0))
        self._engine.rollback(keep)
        del self._rows[keep:]
        self._agreed = keep


class _Level(NamedTuple):
    """What a draft's row says: guesses, the path's own first, and how likely they are."""

    guesses: Sequence[Guess]
    chances: Sequence[float]


def _grows(effort: Effort, sampler: Sampler) -> bool:
    """Whether the likeliest guesses become the tree: none may be left out that was drawn."""
    derived = sampler.derived or effort.certain
    return derived and not effort.branches and effort.nodes > effort.depth


def _grown(levels: Sequence[_Level], effort: Effort) -> Proposal:
    def expand(node: Node) -> Iterator[Candidate]:
        if node.greedy and node.depth < len(levels):
            guesses, chances = levels[node.depth]
            for guess, chance in zip(guesses, chances, strict=True):
                yield guess.token, chance

    tree = grow(expand, effort.nodes, effort.price)
    return Proposal(tree.tokens, tree.parents, [None] * len(tree.tokens))


def _branched(levels: Sequence[_Level], nodes: int) -> Proposal:
    """The path first; then the siblings of its tokens, as far as there is room."""
    proposal = Proposal()
    for level, (guesses, _) in enumerate(levels):
        proposal.add(guesses[0].token, level, guesses[0].law)
    for level, (guesses, _) in enumerate(levels):
        for guess in guesses[1 : 1 + nodes - len(proposal.tokens)]:
            proposal.add(guess.token, level, guess.law)
    return proposal


def _shared(left: Sequence[int], right: Sequence[int], start: int) -> int:
    """The length of the common beginning, known to be at least `start`."""
    end = min(len(left), len(right))
    while start < end and left[start] == right[start]:
        start += 1
    return start
