"""What verification means, in numpy: the oracle that every faster implementation must equal.

A round has K proposed tokens x_1..x_K and K + 1 rows of the target: row i is the target's law (or
logits) for the position of x_(i+1); the last row follows the whole proposal. All randomness comes
in as uniform numbers in [0, 1), so that a result is a function of its arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Verdict", "draw", "greedy_walk", "target_walk", "token_rule"]

Law = NDArray[np.float64]


class Verdict(NamedTuple):
    """How many proposals stand, and the token that the target puts after them."""

    accepted: int
    token: int


def draw(law: Law, uniform: float) -> int:
    """The token at `uniform` of the cumulated `law` [V], which need not sum to one.

    A token of probability zero is never drawn.
    """
    cumulated = np.cumsum(law)
    index = int(np.searchsorted(cumulated, uniform * cumulated[-1], side="right"))
    # Rounding may put the last threshold at the total itself: take the last token with mass.
    return index if index < len(law) else int(np.flatnonzero(law)[-1])


def greedy_walk(logits: NDArray[np.float32], proposal: Sequence[int]) -> Verdict:
    """Follow the target's argmax: rows [K + 1, V]; nothing can beat it at temperature zero."""
    choices = logits.argmax(axis=-1)
    accepted = 0
    while accepted < len(proposal) and proposal[accepted] == choices[accepted]:
        accepted += 1
    return Verdict(accepted, int(choices[accepted]))


def target_walk(
    target: Sequence[Law], proposal: Sequence[int], uniforms: Sequence[float]
) -> Verdict:
    """For proposals that were not drawn but derived (n-grams): draw from the target, then compare.

    `target` and `uniforms` have K + 1 entries. Exact by construction: what is emitted is always the
    target's own draw, and a proposal only decides whether the next row is still valid.
    """
    for index, proposed in enumerate(proposal):
        token = draw(target[index], uniforms[index])
        if token != proposed:
            return Verdict(index, token)
    return Verdict(len(proposal), draw(target[len(proposal)], uniforms[len(proposal)]))


def token_rule(
    target: Sequence[Law],
    draft: Sequence[Law],
    proposal: Sequence[int],
    accept_uniforms: Sequence[float],
    emit_uniforms: Sequence[float],
) -> Verdict:
    """Speculative sampling, token by token (arXiv 2211.17192 and 2302.01318).

    x_i, drawn from draft law q_i, stands with probability min(1, p_i(x_i) / q_i(x_i)); at the first
    that falls, the emitted token comes from the residual max(p_i - q_i, 0). `target` has K + 1
    laws, `draft` the K laws that the proposals were drawn from, bit for bit.
    """
    for index, token in enumerate(proposal):
        p, q = target[index], draft[index]
        if accept_uniforms[index] * q[token] < p[token]:
            continue
        residual = np.maximum(p - q, 0.0)
        # p = q up to rounding leaves no residual; then p itself is the law to draw from.
        law = residual if residual.any() else p
        return Verdict(index, draw(law, emit_uniforms[index]))
    return Verdict(len(proposal), draw(target[len(proposal)], emit_uniforms[len(proposal)]))
