"""Choose the rule that keeps the target's output, for the way a proposal was made."""

from __future__ import annotations

import numpy as np

from speccompile.plugins.reference import Verdict, greedy_walk, target_walk, token_rule
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.engine import Logits
from speccompile.runtime.errors import EngineError
from speccompile.runtime.sampling import Purpose, Randomness, Sampling, law

__all__ = ["verify"]


def verify(
    logits: Logits,
    proposal: Proposal,
    position: int,
    sampling: Sampling,
    randomness: Randomness,
) -> Verdict:
    """Judge `proposal` by the target's rows [K + 1, V]; `position` is that of the first proposal.

    Greedy output equals plain greedy decoding; sampled output has the target's distribution.
    Raises EngineError for logits that are NaN or infinite.
    """
    if not np.isfinite(logits.max(axis=-1)).all():
        raise EngineError(
            "the target's logits are not finite; run `speccompile verify` on this host"
        )
    if sampling.greedy:
        return greedy_walk(logits, proposal.tokens)
    positions = range(position, position + len(proposal.tokens) + 1)
    target = [law(row, sampling) for row in logits]
    emit = [randomness.uniform(place, Purpose.EMIT) for place in positions]
    if not proposal.laws:
        return target_walk(target, proposal.tokens, emit)
    accept = [randomness.uniform(place, Purpose.ACCEPT) for place in positions]
    return token_rule(target, proposal.laws, proposal.tokens, accept, emit)
