"""Draft with the target's own weights, quantized, or some of its layers, in the target's own cache.

A quantized copy of the target computes nearly the target's keys and values, so it needs none of
its own: it reads those that the target wrote, exact ones, and appends its guesses behind them. So
does a draft made of some of the layers, in the caches of these.
There is no prompt to read twice and nothing to catch up with; verification writes every row of the
round again, so that no committed row is ever the draft's.
"""

from __future__ import annotations

from collections.abc import Sequence

from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.engine import CacheSharer, Engine, Logits, prefill

__all__ = ["SharedCacheDraft"]


class SharedCacheDraft(ModelDraft):
    """A `ModelDraft` that begins every round where the target stands."""

    def __init__(self, engine: CacheSharer, target: Engine, name: str = "model") -> None:
        """`engine` works on the cache of `target`."""
        super().__init__(engine, name)
        self._sharer, self._target = engine, target

    def start(self, prompt: Sequence[int]) -> None:
        """The target has read the prompt."""

    def _advance(self, tokens: list[int]) -> Logits:
        return prefill(self._engine, tokens)

    def _catch_up(self, tokens: Sequence[int]) -> list[int]:
        # The target's cache holds all but the root of the round and what it has to be fed again.
        self._sharer.adopt(self._target.length)
        return list(tokens[self._target.length :])
