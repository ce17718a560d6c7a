"""Sequences of tokens that must not appear."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from speccompile.runtime.engine import Logits
from speccompile.runtime.errors import RequestError
from speccompile.runtime.processors.checks import require_tokens

__all__ = ["BadWords"]


class BadWords:
    """Hugging Face's `bad_words_ids`: where all tokens but the last of a word end the sequence, the
    last is forbidden. They may stand in the prompt, wholly or in part. A word of one token is
    forbidden everywhere; a stop token, too.
    """

    def __init__(self, words: Sequence[Sequence[int]], vocabulary: int) -> None:
        """Raises RequestError for an empty word and for a token the model does not have."""
        lasts: dict[tuple[int, ...], list[int]] = {}
        for word in words:
            if not word:
                raise RequestError("bad_words has an empty word; leave it out")
            require_tokens("bad_words", word, vocabulary)
            lasts.setdefault(tuple(word[:-1]), []).append(word[-1])
        self._lasts = lasts
        self._lengths = {len(beginning) for beginning in lasts}

    def apply(self, logits: Logits, tokens: Sequence[int]) -> None:
        for length in self._lengths:
            end = tuple(tokens[max(0, len(tokens) - length) :])
            if end in self._lasts:
                logits[self._lasts[end]] = -np.inf
