"""Numbers that a request adds to the logits of tokens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from speccompile.runtime.engine import Logits
from speccompile.runtime.processors.checks import require_tokens, require_within

__all__ = ["LogitBias"]


class LogitBias:
    """OpenAI's: each token's number, from -100 to 100, is added to its logit.

    -100 all but bans a token and 100 all but forces it: both are added like any other number.
    """

    def __init__(self, bias: Mapping[int, float], vocabulary: int) -> None:
        """Raises RequestError for a number out of range and for a token the model does not have."""
        require_tokens("logit_bias", bias, vocabulary)
        for token, value in bias.items():
            require_within(f"logit_bias of token {token}", value, -100.0, 100.0)
        self._tokens = np.fromiter(bias.keys(), np.intp, len(bias))
        self._values = np.fromiter(bias.values(), np.float32, len(bias))

    def apply(self, logits: Logits, tokens: Sequence[int]) -> None:
        logits[self._tokens] += self._values
