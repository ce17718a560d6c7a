import time
from collections.abc import Sequence

import numpy as np
import pytest

from speccompile.runtime.engine import Logits
from speccompile.runtime.errors import EngineError
from speccompile.runtime.metered import MeteredEngine
from tests.unit.runtime.tables import TableEngine, make_table


def test_a_metered_engine_is_the_engine_and_counts_its_steps() -> None:
    table = make_table(0)
    engine, plain = TableEngine(table), TableEngine(table)
    metered = MeteredEngine(engine)
    np.testing.assert_array_equal(metered.step([1, 2, 3]), plain.step([1, 2, 3]))
    metered.rollback(1)
    metered.step([4])
    assert (metered.length, metered.capacity) == (2, 64)
    assert engine.rows == [1, 4]
    assert (metered.work.steps, metered.work.context) == (2, 3 + 2)
    assert metered.work.computing == metered.work.seconds  # a table has no clock of its own


class FailingEngine(TableEngine):
    def step(
        self,
        tokens: Sequence[int],
        *,
        parents: Sequence[int] | None = None,
        last: int | None = None,
    ) -> Logits:
        time.sleep(0.01)
        raise EngineError("the device is gone")


def test_a_failed_step_costs_time_too() -> None:
    metered = MeteredEngine(FailingEngine(make_table(0)))
    with pytest.raises(EngineError, match="device is gone"):
        metered.step([1])
    assert metered.work.seconds >= 0.01
    assert metered.work.steps == 1
