"""Engines of one sequence each, behind the protocol of several."""

from __future__ import annotations

import numpy as np
import pytest

from speccompile.runtime.batch_engine import Rows
from speccompile.runtime.engines.turns import TurnsEngine
from speccompile.runtime.errors import RequestError
from tests.unit.runtime.tables import TableEngine, make_table

TABLE = make_table(1)


@pytest.fixture
def made() -> list[TableEngine]:
    return [TableEngine(TABLE)]


@pytest.fixture
def engine(made: list[TableEngine]) -> TurnsEngine:
    def another() -> TableEngine:
        made.append(TableEngine(TABLE))
        return made[-1]

    return TurnsEngine(made[0], another)


def test_every_sequence_has_its_own_rows(engine: TurnsEngine, made: list[TableEngine]) -> None:
    first, second = engine.open(), engine.open([5])
    assert (first.length, second.length, engine.capacity) == (0, 0, 64)
    tree = Rows(second, [3, 4, 5], [-1, 0, 0], 2)
    logits = engine.step_many([Rows(first, [1, 2]), tree])
    np.testing.assert_array_equal(logits[0], TableEngine(TABLE).step([1, 2]))
    np.testing.assert_array_equal(
        logits[1], TableEngine(TABLE).step([3, 4, 5], parents=[-1, 0, 0], last=2)
    )
    assert [each.rows for each in made] == [[1, 2], [3, 4, 5]]


def test_an_engine_is_used_again(engine: TurnsEngine, made: list[TableEngine]) -> None:
    first = engine.open()
    first.step([1, 2, 3])
    first.close()
    assert engine.open().length == 0
    assert len(made) == 1


def test_a_call_that_fails_changes_nothing(engine: TurnsEngine, made: list[TableEngine]) -> None:
    first, second = engine.open(), engine.open()
    engine.step_many([Rows(first, [1]), Rows(second, [2] * 63)])
    with pytest.raises(RequestError, match="63 \\+ 2 tokens pass the context"):
        engine.step_many([Rows(first, [3, 4]), Rows(second, [5, 6])])
    assert [len(each.rows) for each in made] == [1, 63]


def test_a_sequence_takes_part_once(engine: TurnsEngine) -> None:
    first = engine.open()
    with pytest.raises(ValueError, match="once"):
        engine.step_many([Rows(first, [1]), Rows(first, [2])])
