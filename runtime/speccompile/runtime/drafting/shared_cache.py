"""Draft with the target's own weights, quantized, in the target's own cache.

A quantized copy of the target computes nearly the target's keys and values, so it needs none of
its own: it reads those that the target wrote, exact ones, and appends its guesses behind them.
There is no prompt to read twice and nothing to catch up with; verification writes every row of the
round again, so that no committed row is ever the draft's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.engine import Engine, Logits, prefill

__all__ = ["CacheSharer", "SharedCacheDraft"]


class CacheSharer(Engine, Protocol):
    """An engine on the cache of another."""

    def adopt(self, length: int) -> None:
        """Take the first `length` rows as they are."""
        ...


class SharedCacheDraft(ModelDraft):
    """A `ModelDraft` that begins every round where the target stands."""

    def __init__(self, engine: CacheSharer) -> None:
        super().__init__(engine)
        self._sharer = engine

    def start(self, prompt: Sequence[int]) -> None:
        """The target has read the prompt."""

    def _advance(self, tokens: list[int]) -> Logits:
        return prefill(self._engine, tokens)

    def _catch_up(self, tokens: Sequence[int]) -> list[int]:
        # The target's cache holds all but the last token, the root of the round.
        self._sharer.adopt(len(tokens) - 1)
        return [tokens[-1]]
