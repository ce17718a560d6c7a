"""Proposals that follow from what is already known, so that nothing of them is drawn."""

from __future__ import annotations

from collections.abc import Sequence

from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.proposal import Proposal

__all__ = ["add_beside", "certain"]


def certain(tokens: Sequence[int], parents: Sequence[int], effort: Effort) -> Proposal:
    """A tree of such tokens, and what `effort` wants beside it."""
    proposal = Proposal(list(tokens), list(parents), [None] * len(tokens))
    add_beside(proposal, effort)
    return proposal


def add_beside(proposal: Proposal, effort: Effort, source: str = "") -> None:
    """Let the tokens ``effort.beside`` follow the root too, as far as there is room for them."""
    present = {proposal.tokens[child - 1] for child in proposal.children(0)}
    for token in effort.beside:
        if token not in present and len(proposal.tokens) < effort.nodes:
            proposal.add(token, 0, source=source)
            present.add(token)
