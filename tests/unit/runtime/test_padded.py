"""Padding makes a lone row the same as one in company, and leaves no trace."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from speccompile.compiler.stages.compile import row_invariant_from
from speccompile.runtime.engine import Logits
from speccompile.runtime.engines.padded import PaddedEngine
from speccompile.runtime.errors import RequestError
from tests.unit.runtime.tables import TableEngine, make_table

TABLE = make_table(1)


class LoneRowEngine(TableEngine):
    """Sums in another order where a step has fewer than `needed` rows, as libraries do."""

    def __init__(self, needed: int, capacity: int = 64) -> None:
        super().__init__(TABLE, capacity)
        self._needed = needed

    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        logits = super().step(tokens, parents=parents, last=last)
        return logits if len(logits) >= self._needed else np.nextafter(logits, np.float32(np.inf))


TOKENS = np.random.default_rng(0).integers(0, 8, 40).tolist()


@pytest.mark.parametrize("needed", [1, 2, 3])
def test_the_fewest_exact_rows_are_found(needed: int) -> None:
    assert row_invariant_from(LoneRowEngine(needed), TOKENS) == needed


def test_an_engine_whose_rows_never_agree_is_recognized() -> None:
    assert row_invariant_from(LoneRowEngine(99), TOKENS) in (0, 1)

    class Restless(TableEngine):
        def step(
            self,
            tokens: Sequence[int],
            *,
            parents: Sequence[int] | None = None,
            last: int | None = None,
        ) -> Logits:
            return super().step(tokens, parents=parents, last=last) * np.float32(
                1 + len(tokens) / 1000
            )

    assert row_invariant_from(Restless(TABLE), TOKENS) == 0


@pytest.mark.parametrize("needed", [2, 3])
def test_a_padded_row_is_exact(needed: int) -> None:
    engine = PaddedEngine(LoneRowEngine(needed), needed)
    alone = np.concatenate([engine.step([token]).copy() for token in TOKENS[:12]])
    engine.rollback(0)
    together = engine.step(TOKENS[:12])
    assert np.array_equal(alone, together)


@pytest.mark.parametrize("last", [1, 2, 5])
def test_the_last_rows_are_exact_too(last: int) -> None:
    engine = PaddedEngine(LoneRowEngine(3), 3)
    rows = engine.step(TOKENS[:12]).copy()
    engine.rollback(0)
    assert np.array_equal(engine.step(TOKENS[:12], last=last), rows[-last:])
    engine.rollback(10)
    assert np.array_equal(engine.step(TOKENS[10:12], last=1), rows[-1:])
    assert engine.length == 12


def test_padding_leaves_no_rows_behind() -> None:
    inner = LoneRowEngine(3)
    engine = PaddedEngine(inner, 3)
    assert engine.step(TOKENS[:1]).shape[0] == 1
    assert engine.length == inner.length == 1
    assert engine.step(TOKENS[1:6]).shape[0] == 5
    assert engine.length == 6


def test_the_padding_has_room_at_the_end() -> None:
    engine = PaddedEngine(LoneRowEngine(2, capacity=8), 2)
    assert engine.capacity == 7
    for token in TOKENS[:7]:
        engine.step([token])
    with pytest.raises(RequestError):
        engine.step(TOKENS[:1])
