"""A draft that is always believed: what every test of sampled output has to find out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from speccompile.plugins.laws import Law
from speccompile.runtime.drafting.draft import Draft, Effort
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.metered import Work
from speccompile.runtime.sampler import Sampler

__all__ = ["Liar"]


class Liar:
    """Declares laws so small that whatever the target might say itself is accepted."""

    def __init__(self, draft: Draft, vocab_size: int) -> None:
        self._draft = draft
        self._law: Law = np.full(vocab_size, 1e-30, np.float32)

    @property
    def name(self) -> str:
        return self._draft.name

    @property
    def work(self) -> Work:
        return self._draft.work

    def start(self, prompt: Sequence[int]) -> None:
        self._draft.start(prompt)

    def propose(self, tokens: Sequence[int], effort: Effort, sampler: Sampler) -> Proposal:
        proposal = self._draft.propose(tokens, effort, sampler)
        return replace(proposal, laws=[self._law] * len(proposal.tokens))
