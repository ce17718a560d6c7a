"""Costs relative to an engine that was timed again with each of the others."""

from __future__ import annotations

from speccompile.compiler.stages.measure_against import relative_costs


def test_what_the_machine_did_meanwhile_falls_out() -> None:
    """While `slow` was timed, all took twice as long as before."""
    before = {"first": {1: 10.0, 2: 12.0}, "fast": {1: 5.0, 2: 6.0}}
    usual = {"first": {1: 10.0, 2: 12.0}, "same": {1: 10.0, 2: 12.0}}
    busy = {"first": {1: 20.0, 2: 24.0}, "slow": {1: 30.0, 2: 24.0}}
    assert relative_costs("first", [before, usual, busy]) == {
        "first": {1: 10.0, 2: 12.0},
        "fast": {1: 5.0, 2: 6.0},
        "same": {1: 10.0, 2: 12.0},
        "slow": {1: 15.0, 2: 12.0},
    }


def test_of_several_ratios_the_one_in_between_counts() -> None:
    timed = [{"first": {1: 10.0}, "other": {1: cost}} for cost in (5.0, 90.0, 6.0)]
    assert relative_costs("first", timed) == {"first": {1: 10.0}, "other": {1: 6.0}}


def test_engines_may_be_timed_for_other_numbers_of_rows() -> None:
    timed = [
        {"first": {1: 10.0, 2: 20.0}, "both": {1: 5.0, 2: 5.0}},
        {"first": {1: 20.0}, "one": {1: 20.0}},
    ]
    assert relative_costs("first", timed) == {
        "first": {1: 15.0, 2: 20.0},
        "both": {1: 7.5, 2: 5.0},
        "one": {1: 15.0},
    }


def test_an_engine_alone_is_as_it_was_timed() -> None:
    assert relative_costs("first", [{"first": {1: 3.0}}]) == {"first": {1: 3.0}}
