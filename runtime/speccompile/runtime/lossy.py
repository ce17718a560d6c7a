"""Rules that let more of a proposal stand than the target's law allows: faster, and another text.

They are asked for by name, and whatever they had a part in is labelled so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from speccompile.plugins.laws import Law, accepts
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.engine import Logits
from speccompile.runtime.sampler import Sampler

__all__ = ["LOSSY_RULES", "LossyRule", "follow"]

LossyRule = Literal["lossy:typical", "lossy:lenient"]
"""``lossy:typical``: a token stands that the target has at least `EPSILON`, or less where it is
undecided: sqrt(EPSILON) times e to the power of minus its entropy (Medusa, arXiv 2401.10774).
``lossy:lenient``: a token stands with probability min(1, p / (LENIENCE q)) (arXiv 2211.17192)."""

LOSSY_RULES: tuple[LossyRule, ...] = get_args(LossyRule)

_EPSILON = 0.09
_LENIENCE = 0.5


def follow(
    rule: LossyRule,
    logits: Logits,
    proposal: Proposal,
    tokens: Sequence[int],
    sampler: Sampler,
) -> tuple[list[int], int]:
    """The nodes that stand, the root first, and the token that the target chooses behind them.

    `logits` are the target's rows [n + 1, V] behind the root and every node.
    """
    path, accepted = [0], list[int]()
    while True:
        node = path[-1]
        law = sampler.law(logits[node], tokens, accepted)
        for child in proposal.children(node):
            number = sampler.randomness.accept(len(tokens) - 1, child)
            if _stands(rule, law, proposal, child, number):
                path.append(child)
                accepted.append(proposal.tokens[child - 1])
                break
        else:
            return path, sampler.choose(logits[node], tokens, accepted).token


def _stands(rule: LossyRule, law: Law, proposal: Proposal, child: int, number: int) -> bool:
    token, drawn_from = proposal.tokens[child - 1], proposal.laws[child - 1]
    p = float(law[token])
    if rule == "lossy:typical":
        return p >= min(_EPSILON, math.sqrt(_EPSILON) * math.exp(-_entropy(law)))
    q = 1.0 if drawn_from is None else float(drawn_from[token])
    return accepts(number, p, _LENIENCE * q)


def _entropy(law: Law) -> float:
    """In nats."""
    some = law[law > 0.0].astype(np.float64)
    return -float((some * np.log(some)).sum())
