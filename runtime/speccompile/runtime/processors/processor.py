"""What changes logits before a token is chosen by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from speccompile.runtime.engine import Logits

__all__ = ["Processor"]


class Processor(Protocol):
    """Penalties, biases, bans: a function of the row and of the sequence before it.

    So plain and speculative decoding see the same logits, and draft and target the same rules.
    """

    def apply(self, logits: Logits, tokens: Sequence[int]) -> None:
        """Change one row [V] in place; `tokens` are the whole sequence before it, the prompt too.

        A token that must not follow gets minus infinity.
        """
        ...
