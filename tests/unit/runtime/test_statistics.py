import time
from collections.abc import Sequence

import numpy as np
import pytest

from speccompile.runtime.engine import Logits
from speccompile.runtime.errors import EngineError
from speccompile.runtime.statistics import MeteredEngine, Statistics
from tests.unit.runtime.tables import TableEngine, make_table


def test_only_proposals_before_and_at_the_first_rejection_are_tested() -> None:
    statistics = Statistics()
    statistics.count_round(3, 1)
    statistics.count_round(4, 4)
    statistics.count_round(0, 0)
    statistics.count_round(2, 0)
    assert statistics.rounds == 4
    assert statistics.proposed == [3, 2, 1, 1]
    assert statistics.accepted == [2, 1, 1, 1]
    assert statistics.acceptance == 5 / 7


def test_a_request_without_rounds_has_rates_of_zero() -> None:
    statistics = Statistics(new_tokens=1)
    assert statistics.decode_tokens == 0
    assert statistics.acceptance == 0.0
    assert statistics.accepted_length == 0.0
    assert statistics.tokens_per_second == 0.0
    assert Statistics().decode_tokens == 0


def test_rates_leave_out_the_token_of_the_prompt() -> None:
    statistics = Statistics(
        new_tokens=13, rounds=4, decode_seconds=3.0, draft_seconds=1.0, target_seconds=1.5
    )
    assert statistics.decode_tokens == 12
    assert statistics.tokens_per_second == 4.0
    assert statistics.accepted_length == 3.0
    assert statistics.overhead_seconds == 0.5


def test_a_metered_engine_is_the_engine_and_counts_its_steps() -> None:
    table = make_table(0)
    engine, plain = TableEngine(table), TableEngine(table)
    metered = MeteredEngine(engine)
    np.testing.assert_array_equal(metered.step([1, 2, 3]), plain.step([1, 2, 3]))
    metered.rollback(1)
    metered.step([4])
    assert (metered.length, metered.capacity) == (2, 64)
    assert engine.rows == [1, 4]
    assert metered.steps == 2


class FailingEngine(TableEngine):
    def step(self, tokens: Sequence[int], *, last: int | None = None) -> Logits:
        time.sleep(0.01)
        raise EngineError("the device is gone")


def test_a_failed_step_costs_time_too() -> None:
    metered = MeteredEngine(FailingEngine(make_table(0)))
    with pytest.raises(EngineError, match="device is gone"):
        metered.step([1])
    assert metered.seconds >= 0.01
    assert metered.steps == 1
