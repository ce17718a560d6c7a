"""Measured costs and acceptance give the draft length, and whether to draft at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speccompile.runtime.costmodel import (
    best_draft_length,
    plain_step_ms,
    predicted_speedup,
    step_ms,
)
from speccompile.runtime.manifest import EngineInfo

TARGET = EngineInfo(
    role="target",
    backend="openvino",
    graph="target",
    precision="fp16",
    arithmetic="fp32",
    layers=1,
    kv_heads=1,
    heads=1,
    head_dim=32,
    capacity=64,
    vocab_size=8,
    min_rows=1,
    shares_cache=False,
    cost_ms={1: 10.0, 2: 11.0, 4: 12.0, 8: 20.0},
)
DRAFT = replace(TARGET, role="draft", cost_ms={1: 1.0, 2: 1.0})


def test_a_step_costs_what_was_measured_or_lies_between() -> None:
    assert step_ms(TARGET, 4) == 12.0
    assert step_ms(TARGET, 3) == pytest.approx(11.5)
    assert step_ms(TARGET, 6) == pytest.approx(16.0)
    assert step_ms(TARGET, 16) == pytest.approx(40.0)


def test_plain_decoding_pays_for_its_padding() -> None:
    assert plain_step_ms(TARGET) == 10.0
    assert plain_step_ms(replace(TARGET, min_rows=2)) == 11.0


def test_the_speedup_is_tokens_over_time() -> None:
    # Three proposals of which all stand: 4 tokens in 3 draft steps and one of 4 rows.
    assert predicted_speedup(3, [1.0], DRAFT, TARGET) == pytest.approx(4 * 10.0 / (3 + 12.0))
    assert predicted_speedup(0, [1.0], DRAFT, TARGET) == 1.0
    # 1 + 1/2 + 1/4 tokens.
    assert predicted_speedup(2, [0.5], DRAFT, TARGET) == pytest.approx(1.75 * 10.0 / (2 + 11.5))


def test_a_draft_that_does_not_pay_is_not_used() -> None:
    slow = replace(DRAFT, cost_ms={1: 10.0, 2: 11.0})
    assert best_draft_length([0.9], slow, TARGET, 8) == 0
    assert best_draft_length([0.0], DRAFT, TARGET, 8) == 0
    assert best_draft_length([], DRAFT, TARGET, 8) == 0


def test_a_better_draft_is_asked_for_more() -> None:
    lengths = [best_draft_length([rate], DRAFT, TARGET, 8) for rate in (0.3, 0.7, 0.99)]
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1]
