"""A number of tokens before which the output must not end."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from speccompile.runtime.engine import Logits
from speccompile.runtime.errors import RequestError
from speccompile.runtime.processors.checks import require_tokens

__all__ = ["MinNewTokens"]


class MinNewTokens:
    """Forbids the stop tokens until `count` tokens follow the prompt."""

    def __init__(
        self, count: int, prompt_length: int, stop_tokens: Collection[int], vocabulary: int
    ) -> None:
        """Raises RequestError for a negative count and for a token the model does not have."""
        if count < 0:
            raise RequestError(f"min_new_tokens is {count}; it cannot be negative")
        require_tokens("stop_tokens", stop_tokens, vocabulary)
        self._length = prompt_length + count
        self._stop_tokens = list(stop_tokens)

    def apply(self, logits: Logits, tokens: Sequence[int]) -> None:
        if len(tokens) < self._length:
            logits[self._stop_tokens] = -np.inf
