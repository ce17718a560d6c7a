from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest

from speccompile.plugins.launches import (
    KERNELS,
    LogitsType,
    compact_launches,
    draft_step_launches,
    tree_mask_launches,
    verify_launches,
    verify_workspace,
)
from speccompile.plugins.schema import MOST_NODES, RULES, Rule, spec_verify


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("logits_type", get_args(LogitsType))
def test_verification_is_two_launches_of_known_kernels(rule: Rule, logits_type: LogitsType) -> None:
    operator = spec_verify(rule)
    names = [argument.name for argument in (*operator.inputs, *operator.outputs)]
    given = {name: 4096 * (index + 1) for index, name in enumerate(names)}
    launches = verify_launches(rule, logits_type, 3, 5, 100, given, 1 << 20)
    assert [launch.kernel in KERNELS for launch in launches] == [True, True]
    assert launches[0].grid == (5, 3, 2 if "draft_logits" in names else 1)
    assert launches[1].grid == (3, 1, 1)
    passed = [argument.value for launch in launches for argument in launch.arguments]
    assert {1 << 20, *given.values()} <= set(passed)


def test_launches_are_compared_by_what_they_do() -> None:
    launch = tree_mask_launches(1, 2, 32, 0, dict.fromkeys(_MASK, 64))[0]
    assert replace(launch) == launch


def test_workspace_holds_a_record_for_each_row_of_both_models() -> None:
    assert verify_workspace(2, 8) == 2 * 2 * 8 * 16


def test_more_nodes_than_the_kernels_hold_are_refused() -> None:
    with pytest.raises(ValueError, match="1025 nodes; there are 1 to 1024"):
        tree_mask_launches(1, MOST_NODES + 1, 32, 0, dict.fromkeys(_MASK, 64))


def test_narrow_cache_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="cache rows of 24 bytes are no multiple of 16"):
        compact_launches(1, 2, 1, 32, 24, 0, 0, dict.fromkeys(("path", "count", "lengths"), 64))


def test_a_step_asks_for_the_addresses_it_needs_alone() -> None:
    state = ("tokens", "lengths", "seeds")
    inputs = ("draft_input", "draft_lengths", "draft_uniforms")
    draft_step_launches(1, 0, 3, dict.fromkeys(state + inputs, 64))
    draft_step_launches(1, 2, 3, dict.fromkeys((*state, "draft_next_token", "uniforms"), 64))
    with pytest.raises(KeyError, match="draft_next_token"):
        draft_step_launches(1, 1, 3, dict.fromkeys(state + inputs, 64))


_MASK = ("parents", "lengths", "position_ids", "attention_mask", "sliding_mask")
