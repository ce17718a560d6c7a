"""Equality holds for what is sound, at T = 0 and at T > 0, and each defect ends it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from speccompile.runtime.engine import Engine
from speccompile.runtime.proof.check import Check
from speccompile.runtime.proof.equality import always_greedy, check_equality
from speccompile.runtime.proof.ledger import Ledger
from speccompile.runtime.proof.variants import Variant
from speccompile.runtime.sampling import Sampling
from tests.unit.runtime.proof.sessions import (
    PROMPTS,
    TARGET,
    VARIANTS,
    VERIFY,
    Keeping,
    Noisy,
    believing,
    open_session,
)
from tests.unit.runtime.tables import VOCABULARY, TableEngine

TOKENS = 24


def audited(prompt: int) -> Sampling:
    return Sampling(0.8, seed=prompt + 1, audited=True)


def drawn(prompt: int) -> Sampling:
    return Sampling(0.8, seed=prompt + 1)


def equality(
    target: Engine | None = None,
    sampling: Callable[[int], Sampling] = always_greedy,
    *,
    stop: frozenset[int] = frozenset(),
    tolerance: float = 0.0,
    ledger: Ledger | None = None,
) -> Check:
    target = target or TableEngine(TARGET)
    return check_equality(
        "greedy",
        target,
        lambda variant: open_session(target, variant),
        VARIANTS,
        PROMPTS,
        tokens=TOKENS,
        sampling=sampling,
        stop_tokens=stop,
        tolerance=tolerance,
        ledger=ledger,
    )


@pytest.mark.parametrize("sampling", [always_greedy, audited])
def test_of_a_sound_session(sampling: Callable[[int], Sampling]) -> None:
    check = equality(sampling=sampling)
    assert check.passed
    assert check.details["first_difference"] is None
    assert check.details["compared_tokens"] == TOKENS * len(PROMPTS) * len(VARIANTS)
    assert check.details["flips_per_1000_tokens"] == 0.0
    tested = check.details["tested_proposals"]
    assert isinstance(tested, int)
    assert tested > TOKENS
    assert "model, ngram, suffix, union draft, lengths 1, 3, trees of 7" in check.summary


def test_output_that_is_not_audited_is_another() -> None:
    assert not equality(sampling=drawn).passed


def test_it_stops_where_the_model_does() -> None:
    check = equality(stop=frozenset({0, 3}))
    compared = check.details["compared_tokens"]
    assert check.passed
    assert isinstance(compared, int)
    assert 0 < compared < TOKENS * len(PROMPTS) * len(VARIANTS)


def test_nothing_compared_is_no_proof() -> None:
    assert not equality(stop=frozenset(range(VOCABULARY))).passed


@pytest.mark.parametrize("sampling", [always_greedy, audited])
def test_it_catches_a_wrong_roll_back(sampling: Callable[[int], Sampling]) -> None:
    assert not equality(Keeping(TARGET), sampling).passed


@pytest.mark.parametrize("sampling", [always_greedy, audited])
def test_it_catches_a_verifier_that_believes(
    sampling: Callable[[int], Sampling], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VERIFY, believing)
    check = equality(sampling=sampling, tolerance=1e-3)
    assert not check.passed
    first = check.details["first_difference"]
    assert isinstance(first, dict)
    assert first["plain"] != first["speculative"]
    assert first["margin"] > 1e-3
    assert f"prompt {first['prompt']}, position {first['position']}" in check.summary


@pytest.mark.parametrize("sampling", [always_greedy, audited])
def test_ties_are_told_from_faults_and_reported(sampling: Callable[[int], Sampling]) -> None:
    noise = 0.5
    check = equality(Noisy(noise), sampling, tolerance=4 * noise)
    assert check.passed
    assert check.details["ties"]
    assert "per 1,000 tokens" in check.summary
    assert not equality(Noisy(noise), sampling, tolerance=0.0).passed


def test_the_first_difference_may_be_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VERIFY, believing)
    assert not equality(stop=frozenset({0, 3})).passed


def test_a_killed_check_goes_on_with_the_next_prompt(tmp_path: Path) -> None:
    whole = equality()
    path, opened = tmp_path / "state.json", list[Variant]()
    target = TableEngine(TARGET)

    def run(most: int | None) -> Check:
        def session(variant: Variant) -> object:
            opened.append(variant)
            if len(opened) == most:
                raise KeyboardInterrupt
            return open_session(target, variant)

        return check_equality(
            "greedy",
            target,
            session,  # type: ignore[arg-type]
            VARIANTS,
            PROMPTS,
            tokens=TOKENS,
            ledger=Ledger(path),
        )

    runs = 1 + len(VARIANTS)
    with pytest.raises(KeyboardInterrupt):
        run(runs + 3)
    opened.clear()
    assert run(None) == whole
    assert len(opened) == runs * (len(PROMPTS) - 1)
