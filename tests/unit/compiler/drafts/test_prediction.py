from __future__ import annotations

import pytest

from speccompile.compiler.drafts.prediction import Pace, weight_share
from tests.families import tiny


def test_a_step_reads_its_layers_and_its_head() -> None:
    config = tiny("llama", num_hidden_layers=4).config
    assert weight_share(config, 4, 0) == 1.0
    layer = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 96 + 2 * 64
    head = 64 * 512
    assert weight_share(config, 1, 128) == pytest.approx((layer + head / 4) / (4 * layer + head))


def test_no_acceptance_passes_the_bound() -> None:
    predicted = Pace().predict(0.25, [1.0])
    assert predicted.bound == 4.0
    assert predicted.length == 8
    assert predicted.speedup == pytest.approx(9 / (1 + 8 * 0.25))
    assert predicted.tokens_per_second == 0.0
    assert Pace().predict(0.9, [0.5]).length == 1
    assert Pace().predict(0.9, [0.5]).speedup < 1.0


def test_what_was_measured_counts() -> None:
    pace = Pace({1: 10.0, 2: 12.0, 9: 12.0}, cheaper=0.5, measured=True)
    predicted = pace.predict(0.4, [0.8, 0.0])
    assert predicted.cost == pytest.approx(0.2)
    assert predicted.length == 1
    assert predicted.speedup == pytest.approx(1.8 * 10 / (2 + 12))
    assert predicted.tokens_per_second == pytest.approx(1000 / 10 * predicted.speedup)
