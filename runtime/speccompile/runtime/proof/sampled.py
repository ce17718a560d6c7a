"""Sampled output against the target's law: a chi-square test of the production loop.

The laws are the engines' own, asked once per context; session, drafts, verification and random
numbers are those of production, run once per seed. A test that finds nothing may be blind, so a
draft that gets everything accepted has to be found out by the very same test.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.ngram import NgramDraft
from speccompile.runtime.drafting.proposal import Draft, Proposal
from speccompile.runtime.engine import Engine, Logits
from speccompile.runtime.proof.check import Check, Progress, silent
from speccompile.runtime.proof.chisquare import goodness_of_fit
from speccompile.runtime.proof.tables import TableEngine, Tables, open_tables
from speccompile.runtime.sampling import Randomness, Sampling, law
from speccompile.runtime.session import Request, Session

__all__ = ["LEAST_P", "SAMPLING", "check_sampling"]

LEAST_P = 1e-9
"""A lossless artifact fails a test once in a thousand million."""

SAMPLING = Sampling(temperature=1.0, top_k=12)
"""Twelve tokens hold most of a law, and keep the number of rows to ask for small."""

_CONTEXTS = 3
_ENDINGS = 24  # the last tokens of a prompt, among which a context is looked for
_LENGTHS = (1, 2)  # draft lengths, in turn: two tokens are inside a proposal, or end one


def check_sampling(
    target: Engine,
    draft: Engine | None,
    prompts: Sequence[Sequence[int]],
    draws: int,
    progress: Progress = silent,
) -> Check:
    """Test the first token and the first two, over `draws` seeds, for every draft and context.

    The contexts are those at which accepting everything would show most. Passes where every p is at
    least `LEAST_P` and the control of every kind of draft is below it.
    """
    contexts = _telling_contexts(target, draft, prompts)
    kinds = ("model", "ngram") if draft else ("ngram",)
    total, results = len(contexts) * len(kinds), list[_Result]()
    for context in contexts:
        tables = open_tables(target, draft, context, SAMPLING)
        for kind in kinds:
            p_first, p_pair = _test(tables, kind, draws, honest=True)
            control = min(_test(tables, kind, draws, honest=False))
            results.append(_Result(kind, len(context), p_first, p_pair, control))
            progress("sampling", len(results), total)
    worst = min(min(result.p_first, result.p_pair) for result in results)
    control = {kind: min(r.p_control for r in results if r.draft == kind) for kind in kinds}
    blind = [kind for kind, p in control.items() if p >= LEAST_P]
    return Check(
        "sampling",
        worst >= LEAST_P and not blind,
        _summary(worst, blind, f"{draws * total} draws at {len(contexts)} contexts"),
        {
            "draws": draws,
            "temperature": SAMPLING.temperature,
            "top_k": SAMPLING.top_k,
            "least_p": LEAST_P,
            "worst_p": worst,
            "control_p": control,
            "powerless": blind,
            "tests": [asdict(result) for result in results],
        },
    )


@dataclass(frozen=True)
class _Result:
    draft: str
    context_tokens: int
    p_first: float
    p_pair: float
    p_control: float


class _Liar:
    """Declares laws so small that whatever the target might say itself is accepted."""

    def __init__(self, draft: Draft) -> None:
        self._draft = draft

    @property
    def engine_seconds(self) -> float:
        return self._draft.engine_seconds

    def start(self, prompt: Sequence[int]) -> None:
        self._draft.start(prompt)

    def propose(
        self, tokens: Sequence[int], limit: int, sampling: Sampling, randomness: Randomness
    ) -> Proposal:
        proposal = self._draft.propose(tokens, limit, sampling, randomness)
        # Room for every token of a table, and for the two of its stem.
        size = 1 + max([*proposal.tokens, 0])
        return Proposal(proposal.tokens, [np.full(size, 1e-300) for _ in proposal.tokens])
