"""Pad short steps, so that a row's logits are the same bits alone and among others."""

from __future__ import annotations

from collections.abc import Sequence

from speccompile.runtime.engine import Engine, Logits
from speccompile.runtime.engines.around import AroundEngine

__all__ = ["PaddedEngine"]


class PaddedEngine(AroundEngine[Engine]):
    """Every step has at least `min_rows` rows.

    Libraries take another path for one row (a matrix-vector product, whose sums run in another
    order) than for several. Where all others agree bit for bit, one row of padding makes plain and
    speculative decoding compute the very same numbers. The padding's cache slots are free again
    after the step; as many are kept spare at the end.
    """

    def __init__(self, engine: Engine, min_rows: int) -> None:
        super().__init__(engine)
        self._min_rows = min_rows

    @property
    def capacity(self) -> int:
        return self.engine.capacity - (self._min_rows - 1)

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        # The head's rows count too: one alone would be summed in another order.
        rows = len(tokens)
        wanted = rows if last is None else last
        missing = self._min_rows - rows
        if missing <= 0:
            computed = last and max(last, self._min_rows)
            return self.engine.step(tokens, parents=parents, last=computed)[-wanted:]
        end = self.engine.length + rows
        if parents is not None:  # more rows behind the last, as in a chain
            parents = [*parents, *range(rows - 1, rows - 1 + missing)]
        logits = self.engine.step([*tokens, *[tokens[-1]] * missing], parents=parents)
        self.engine.rollback(end)
        return logits[rows - wanted : rows]
