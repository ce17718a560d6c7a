"""Sessions on tables, and what is wrong with some of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from speccompile.runtime.control.controller import Controller
from speccompile.runtime.drafting.draft import Draft
from speccompile.runtime.drafting.ensemble import Union
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.ngram import NgramDraft
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.drafting.suffix import SuffixDraft
from speccompile.runtime.engine import Engine, Logits
from speccompile.runtime.proof.variants import Variant
from speccompile.runtime.request import Rule
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.session import Session
from speccompile.runtime.verify import Verdict, verify
from tests.unit.runtime.tables import TableEngine, make_table, near_table

__all__ = [
    "DRAFT",
    "PROMPTS",
    "TARGET",
    "VARIANTS",
    "VERIFY",
    "Keeping",
    "Noisy",
    "believing",
    "open_session",
    "resampling",
    "shifted",
    "short",
]

TARGET = make_table(1)
DRAFT = near_table(TARGET, 2)
PROMPTS = [[1, 2, 3, 1, 2], [4], [5, 0, 5, 0, 5, 0]]
VERIFY = "speccompile.runtime.decoding.verify"
"""Where the loop finds its verifier."""

_KINDS = ("model", "ngram", "suffix", "union")
VARIANTS = [
    Variant(kind, depth, nodes) for kind in _KINDS for depth, nodes in ((1, 0), (3, 0), (3, 7))
]


class Noisy(TableEngine):
    """Adds to its logits something that depends on the steps it made before."""

    def __init__(self, noise: float) -> None:
        super().__init__(TARGET)
        self._noise = noise

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        rows = super().step(tokens, parents=parents, last=last)
        rows += self._noise * np.random.default_rng(len(self.steps)).random(rows.shape, np.float32)
        return rows


class Keeping(TableEngine):
    """Keeps one row too many whenever it rolls back rejected ones."""

    def rollback(self, length: int) -> None:
        super().rollback(min(length + 1, self.length) if length else 0)


def open_session(target: Engine, variant: Variant, controller: Controller | None = None) -> Session:
    drafts: dict[str, Callable[[], Draft | None]] = {
        "model": _model,
        "ngram": NgramDraft,
        "suffix": SuffixDraft,
        "union": lambda: Union([SuffixDraft()], [_model()]),
        "none": lambda: None,
    }
    return Session(target, drafts[variant.draft](), controller or variant.controller())


def believing(
    logits: Logits, proposal: Proposal, tokens: Sequence[int], sampler: Sampler, rule: Rule
) -> Verdict:
    """Accepts the first path as a whole."""
    path = [0]
    while children := proposal.children(path[-1]):
        path.append(children[0])
    token = sampler.choose(logits[path[-1]], tokens, proposal.path(path[-1])).token
    return Verdict(path, token)


def resampling(
    logits: Logits, proposal: Proposal, tokens: Sequence[int], sampler: Sampler, rule: Rule
) -> Verdict:
    """Takes the token after a rejection from the target's law instead of the residual."""
    path = verify(logits, proposal, tokens, sampler, rule).path
    # The number of another position: that of this one may have been used.
    return Verdict(path, sampler.choose(logits[path[-1]], [*tokens, *[0] * 40]).token)


def shifted(
    logits: Logits, proposal: Proposal, tokens: Sequence[int], sampler: Sampler, rule: Rule
) -> Verdict:
    """Judges by the rows after the right ones."""
    rows = np.concatenate([logits[1:], logits[-1:]])
    return verify(rows, proposal, tokens, sampler, rule)


def short(
    logits: Logits, proposal: Proposal, tokens: Sequence[int], sampler: Sampler, rule: Rule
) -> Verdict:
    """Rolls an accepted token back with the rejected one, and emits in its place."""
    path, token = verify(logits, proposal, tokens, sampler, rule)
    return Verdict(path[:-1] or path, token)


def _model() -> ModelDraft:
    return ModelDraft(TableEngine(DRAFT))
