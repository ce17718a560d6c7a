"""Who decides how much to draft: what a controller is asked, and what it learns from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.engine import Logits
from speccompile.runtime.sampler import Sampler

__all__ = ["Controller", "FixedController", "Outcome"]


@dataclass(frozen=True)
class Outcome:
    """A round that is over.

    `path` are the accepted nodes, the root first; `token` is what the target put behind them, and
    `row` the target's logits [V] there. `rows` went into the target's step, those among them that
    were only fed again. Times are in seconds; those of a round are of all its parts. `policies`
    are the names of the roll-back policies that shaped its proposal. Where the round can be checked
    (`proof.online`), `logits` are the target's rows [n + 1, V] of the root and the proposal, until
    the next step, `tokens` the sequence before the round, the root last, and `sampler` makes of
    the rows the laws that were to be kept.
    """

    proposal: Proposal
    path: Sequence[int]
    token: int
    row: Logits
    rows: int
    draft_seconds: float
    target_seconds: float
    seconds: float
    policies: Sequence[str] = ()
    logits: Logits | None = None
    tokens: Sequence[int] = ()
    sampler: Sampler | None = None

    @property
    def accepted(self) -> int:
        """Proposals that stood."""
        return len(self.path) - 1

    @cached_property
    def target(self) -> NDArray[np.float64]:
        """What the target thought of the token behind the path, at a temperature of 1: [V]."""
        weights = np.exp((self.row - self.row.max()).astype(np.float64))
        law: NDArray[np.float64] = weights / weights.sum()
        return law


class Controller(Protocol):
    """Decides, round by round, how much to draft."""

    def start(self) -> None:
        """A request begins."""
        ...

    def effort(self, room: int) -> Effort | None:
        """What the next round may spend, at most `room` deep; None is a plain step."""
        ...

    def learn(self, outcome: Outcome) -> None:
        """A round is over, a plain one too."""
        ...


@dataclass(frozen=True)
class FixedController:
    """The same for every round."""

    depth: int
    nodes: int | None = None

    def start(self) -> None:
        """Nothing to begin with."""

    def effort(self, room: int) -> Effort | None:
        depth = min(self.depth, room)
        nodes = depth if self.nodes is None else self.nodes
        return Effort(depth, nodes) if depth > 0 and nodes > 0 else None

    def learn(self, outcome: Outcome) -> None:
        """Nothing to learn."""
