"""Whole rows of an engine whose head computes some of the tokens only.

Of a draft alone: what its law leaves out it never proposes, and the target decides all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.engine import CacheSharer, Logits
from speccompile.runtime.engines.around import AroundEngine
from speccompile.runtime.errors import EngineError

__all__ = ["RestrictedEngine", "read_token_ids"]


class RestrictedEngine(AroundEngine[CacheSharer]):
    """Spreads rows [n] of the tokens `token_ids` [n] over rows [V], minus infinity elsewhere."""

    def __init__(self, engine: CacheSharer, token_ids: NDArray[np.int32], vocab_size: int) -> None:
        """`token_ids` are below `vocab_size`, in the order of the engine's columns."""
        super().__init__(engine)
        self._token_ids = token_ids.astype(np.intp)  # as numpy wants an index: no copy a step
        self._rows: Logits = np.full((1, vocab_size), -np.inf, np.float32)

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        computed = self.engine.step(tokens, parents=parents, last=last)
        if len(computed) > len(self._rows):
            shape = (len(computed), self._rows.shape[1])
            self._rows = np.full(shape, -np.inf, np.float32)
        rows = self._rows[: len(computed)]
        for row, values in zip(rows, computed, strict=True):
            row[self._token_ids] = values
        return rows

    def adopt(self, length: int) -> None:
        self.engine.adopt(length)


def read_token_ids(path: Path, vocab_size: int) -> NDArray[np.int32]:
    """The tokens [n] in a file of int32, little-endian: rising, and all below `vocab_size`.

    Raises EngineError for any other file.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise EngineError(f"{path}: cannot be read: {error.strerror}") from error
    ids = np.frombuffer(content[: len(content) // 4 * 4], "<i4").astype(np.int32)
    rising = ids.size > 0 and ids[0] >= 0 and bool((ids[1:] > ids[:-1]).all())
    if len(content) % 4 or not rising or ids[-1] >= vocab_size:
        raise EngineError(
            f"{path}: does not hold rising token ids below {vocab_size}; build the artifact again"
        )
    return ids
