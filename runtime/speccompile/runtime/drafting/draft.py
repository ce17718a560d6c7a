"""What a draft is, and what it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.metered import Work
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.signals import Signals

__all__ = ["Draft", "Effort", "always"]


def always(signals: Signals) -> bool:
    """Go on, whatever the signals say."""
    return True


@dataclass(frozen=True)
class Effort:
    """What a round may spend on its proposal: a tree of at most `nodes` nodes and `depth` levels.

    `go_on` is asked after each token of the first path, which stays whatever the answer: whether a
    drawn token is verified must not depend on the token. `branches` says how many children a node
    of a depth gets (the root's is 0), one where it says nothing. `beside` are tokens to try behind
    the root after the draft's own. `certain` has the draft propose what it thinks most likely
    instead of drawing. `price` is the probability of standing that a node beside the first path
    must have to be worth its row. `policies` are the names of those that shaped it.
    """

    depth: int
    nodes: int
    go_on: Callable[[Signals], bool] = always
    branches: Mapping[int, int] = field(default_factory=dict[int, int])
    beside: tuple[int, ...] = ()
    certain: bool = False
    price: float = 0.0
    policies: tuple[str, ...] = ()


class Draft(Protocol):
    """Guesses how a sequence goes on."""

    @property
    def name(self) -> str:
        """For statistics: "model", "ngram", ..."""
        ...

    @property
    def work(self) -> Work:
        """What its engines did since the draft was made."""
        ...

    def start(self, prompt: Sequence[int]) -> None:
        """Begin a request; what is cached of an earlier one with the same beginning may stay."""
        ...

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        """A tree behind the last of `tokens`, which begin with those of the last call."""
        ...
