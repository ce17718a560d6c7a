"""A target and a draft that count: what they say is known beforehand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.engine import Logits
from speccompile.runtime.metered import Work
from speccompile.runtime.sampler import Sampler

__all__ = ["CountingDraft", "CountingEngine"]

VOCABULARY = 32


class CountingEngine:
    """A table of one rule: token t is followed by t + `stride`."""

    capacity = 64
    takes_trees = True

    def __init__(self, stride: int = 1) -> None:
        self.length = 0
        self.steps: list[int] = []
        self._stride = stride

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        self.steps.append(len(tokens))
        self.length += len(tokens)
        following = (np.array(tokens) + self._stride) % VOCABULARY
        logits: Logits = np.eye(VOCABULARY, dtype=np.float32)[following]
        return logits[-(last or len(tokens)) :]

    def rollback(self, length: int) -> None:
        self.length = length


class CountingDraft:
    """Right about the first token of a chain, wrong about the second."""

    name = "counting"
    work = Work()

    def start(self, prompt: Sequence[int]) -> None:
        pass

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        return Proposal.chain([(tokens[-1] + 1) % VOCABULARY, 31, 31][: effort.nodes])
