"""What a draft is worth, from what it thought of its target's own texts.

A round stands up to its first mistake, and up to there it stands behind the target's own text. So a
pass over that text, with the place of every token among the draft's guesses, tells of chains of any
length and of trees of any fixed shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.drafts.acceptance import Acceptance, acceptance
from speccompile.compiler.quality import log_softmax
from speccompile.runtime.costmodel import Costs, plain_step_ms, round_ms, step_ms
from speccompile.runtime.trees.best_first import Candidate, Node, grow

__all__ = ["EVERYTHING", "LONGEST", "Figures", "StepCosts", "Trace", "Tree", "figures", "trace"]

LONGEST = 8
"""Tokens of the longest chain, and nodes of the largest tree: rounds of as many rows."""

EVERYTHING = "all"
"""The domain of all texts, where there are several."""

_WIDTH = 4  # guesses a row, as many as the runtime's model draft makes

_Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Trace:
    """Of every token [n] of a text: its `ranks` among the draft's guesses, 0 for the first; and the
    `overlaps` of the draft's law there with the target's, at a temperature of 1, which is 1 - TV
    and the probability that a drawn token stands. The first token is the prompt's: no round
    proposes it."""

    ranks: NDArray[np.int64]
    overlaps: NDArray[np.float64]


def trace(said: NDArray[np.int64], draft: _Floats, target: _Floats) -> Trace:
    """Of the tokens `said` [n], each of which followed the place of a row of both logits [n, V].

    Minus infinity is what a draft with fewer tokens makes of the others: it never proposes them.
    """
    rows, tokens = np.arange(len(said)), np.arange(draft.shape[1])
    own = draft[rows, said][:, None]
    # The lowest id of equals is proposed first.
    before = (draft > own) | ((draft == own) & (tokens < said[:, None]))
    ranks = np.where(np.isneginf(own[:, 0]), draft.shape[1], before.sum(1))
    least = np.minimum(log_softmax(draft), log_softmax(target))
    return Trace(ranks.astype(np.int64), np.exp(least).sum(1, dtype=np.float64))


@dataclass(frozen=True)
class StepCosts:
    """What steps cost by rows, in milliseconds where they were `measured`; else the draft's are
    `predicted` in plain steps of the target, whose rows are then free."""

    target: Costs
    draft: Costs
    shares_cache: bool
    measured: bool

    @classmethod
    def predicted(cls, ratio: float) -> StepCosts:
        return cls({1: 1.0, LONGEST + 1: 1.0}, {1: ratio, 2: ratio}, False, False)

    @property
    def ratio(self) -> float:
        """Of a draft's step to the target's: no speed-up is above its inverse."""
        return step_ms(self.draft, 1) / plain_step_ms(self.target)

    def speedup(self, tokens: float, levels: int, nodes: int) -> float:
        """Over plain decoding, of rounds that emit so many `tokens`."""
        costs = (self.draft, self.target)
        takes = round_ms(levels, nodes, *costs, shares_cache=self.shares_cache)
        return tokens * plain_step_ms(self.target) / takes


@dataclass(frozen=True)
class Tree:
    """The draft's first choices, and beside them the next ones: ``widths[d]`` guesses at depth d.
    That is what the runtime grows, since a draft has rows for its first choices only."""

    widths: tuple[int, ...]
    tokens_a_round: float
    speedup: float


@dataclass(frozen=True)
class Figures:
    """Of greedy rounds over so many `texts` with so many `tokens` that a round could propose.

    `positions` says how often each position of a chain stood, of those before which all stood.
    ``tokens_a_round[k]``, the target's own token included, and ``speedups[k]``, as costs predict
    it, are of chains of k, the plain step of 0 among them; the best is `best_length`.
    """

    texts: int
    tokens: int
    positions: tuple[float, ...]
    overlap: float
    tokens_a_round: tuple[float, ...]
    speedups: tuple[float, ...]
    best_length: int
    tree: Tree | None


def figures(
    texts: Mapping[str, Sequence[Trace]], costs: StepCosts, *, depth: int, trees: bool = True
) -> dict[str, Figures]:
    """By domain, and of all together where there are several; one without a token that a round
    could propose is left out.

    Positions are those of chains of `depth`. The shape of the tree is the one that is best for all
    texts together; there is none where the target takes no `trees`.
    """
    told = {domain: _Texts(traces) for domain, traces in texts.items()}
    told = {domain: each for domain, each in told.items() if each.tokens}
    if not told:
        return {}
    everything = _Texts([each for of_domain in told.values() for each in of_domain.traces])
    if len(told) > 1:
        told[EVERYTHING] = everything
    widths = _best_widths(everything, costs) if trees else None
    return {domain: each.figures(costs, depth, widths) for domain, each in told.items()}


@dataclass(frozen=True)
class _Texts:
    traces: Sequence[Trace]

    @cached_property
    def tokens(self) -> int:
        return sum(max(len(each.ranks) - 1, 0) for each in self.traces)

    def figures(self, costs: StepCosts, depth: int, widths: tuple[int, ...] | None) -> Figures:
        chains = [self.chains(length) for length in range(1, LONGEST + 1)]
        tokens = (1.0, *(chain.tokens_a_round for chain in chains))
        speedups = tuple(costs.speedup(each, length, length) for length, each in enumerate(tokens))
        overlaps = np.concatenate([each.overlaps[1:] for each in self.traces])
        return Figures(
            texts=len(self.traces),
            tokens=self.tokens,
            positions=self.chains(depth).positions,
            overlap=float(overlaps.mean()),
            tokens_a_round=tokens,
            speedups=speedups,
            best_length=int(np.argmax(speedups)),
            tree=None if widths is None else self.tree(widths, costs),
        )

    def chains(self, depth: int) -> Acceptance:
        return acceptance((each.ranks == 0 for each in self.traces), depth)

    def tree(self, widths: tuple[int, ...], costs: StepCosts) -> Tree:
        rounds = sum(_rounds(each.ranks, widths) for each in self.traces)
        tokens = self.tokens / rounds
        return Tree(widths, tokens, costs.speedup(tokens, len(widths), sum(widths)))

    def profile(self) -> list[list[float]]:
        """Of the guesses of each depth, how often each is right behind first choices that are."""
        counts = np.zeros((LONGEST, _WIDTH))
        tested = np.zeros((LONGEST, 1))
        for each in self.traces:
            behind = np.ones(max(len(each.ranks) - 1, 0), np.bool_)
            ranks = each.ranks[1:]
            for depth in range(LONGEST):
                tested[depth] += behind.sum()
                counts[depth] += [(behind & (ranks == rank)).sum() for rank in range(_WIDTH)]
                behind[1:], behind[:1] = (behind & (ranks == 0))[:-1], False
        profile: list[list[float]] = (counts / np.maximum(tested, 1)).tolist()
        return profile


def _best_widths(texts: _Texts, costs: StepCosts) -> tuple[int, ...]:
    """Of the trees of at most `LONGEST` nodes in each number of levels, the fastest."""
    profile, upto = texts.profile(), range(1, LONGEST + 1)
    shapes = {_widths(profile[:levels], nodes) for levels in upto for nodes in upto}
    return max(sorted(shapes), key=lambda widths: texts.tree(widths, costs).speedup)


def _widths(profile: Sequence[Sequence[float]], nodes: int) -> tuple[int, ...]:
    """The children of each first choice, the root's first, in the tree of the likeliest paths."""

    def expand(node: Node) -> Iterator[Candidate]:
        if node.greedy and node.depth < len(profile):
            yield from enumerate(profile[node.depth])

    parents = grow(expand, nodes).parents
    counts = (parents.count(node) for node in range(len(profile)))
    return tuple(count for count in counts if count)


def _rounds(ranks: NDArray[np.int64], widths: Sequence[int]) -> int:
    """How many rounds of such a tree a text takes."""
    found, rounds, place = ranks.tolist(), 0, 1
    while place < len(found):
        rounds += 1
        for width in widths:
            rank = found[place] if place < len(found) else width
            place += rank < width
            if rank:
                break
        place += 1  # the target's own
    return rounds
