"""The chi-square tests pass for a sound loop, and find each wrong rule."""

from collections.abc import Callable

import numpy as np
import pytest

from speccompile.runtime.proof.check import Check
from speccompile.runtime.proof.sampled import check_sampling
from speccompile.runtime.proof.tables import law_of, open_tables
from speccompile.runtime.sampling import Sampling
from speccompile.runtime.verify import Verdict
from tests.unit.runtime.proof.sessions import (
    DRAFT,
    PROMPTS,
    TARGET,
    VERIFY,
    believing,
    resampling,
    shifted,
    short,
)
from tests.unit.runtime.tables import TableEngine

DRAWS = 600


def sampling(draws: int = DRAWS) -> Check:
    return check_sampling(TableEngine(TARGET), TableEngine(DRAFT), PROMPTS[:1], draws)


def test_tables_hold_the_laws_of_the_engines() -> None:
    rule = Sampling(temperature=0.7, top_k=3)
    tables = open_tables(TableEngine(TARGET), TableEngine(DRAFT), [4, 1], rule)
    assert tables.draft is not None
    assert tables.first.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(law_of(tables.target[()], rule), tables.first)
    sampled = np.flatnonzero(tables.first)
    np.testing.assert_allclose(tables.second[sampled].sum(axis=1), 1.0)
    for token in map(int, sampled):
        np.testing.assert_allclose(law_of(tables.target[(token,)], rule), tables.second[token])
        assert (token,) in tables.draft


def test_a_sound_verifier() -> None:
    check = sampling()
    assert check.passed
    assert check.details["powerless"] == []
    tests = check.details["tests"]
    assert isinstance(tests, list)
    assert [test["draft"] for test in tests] == [
        "model",
        "model tree",
        "union tree",
        "ngram",
        "suffix",
    ]
    # Of every population there is something to test, but that a tree's siblings are ends as well.
    assert {name for test in tests for name, p in test["p"].items() if p < 1.0} == {
        *("first", "pair", "opening", "interior", "bonus")
    }


def test_a_draft_that_is_the_target() -> None:
    assert check_sampling(TableEngine(TARGET), TableEngine(TARGET), PROMPTS[:1], DRAWS).passed


def test_without_a_model() -> None:
    check = check_sampling(TableEngine(TARGET), None, PROMPTS[:1], DRAWS)
    controls = check.details["control_p"]
    assert check.passed
    assert isinstance(controls, dict)
    assert controls.keys() == {"ngram", "suffix"}


def test_too_few_draws_are_no_proof() -> None:
    check = sampling(draws=10)
    assert not check.passed
    assert check.details["powerless"]
    assert "too few" in check.summary


@pytest.mark.parametrize("wrong", [believing, resampling, shifted, short])
def test_wrong_rules_are_found_out(
    wrong: Callable[..., Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(VERIFY, wrong)
    check = check_sampling(TableEngine(TARGET), TableEngine(DRAFT), PROMPTS[:1], DRAWS)
    assert not check.passed
    assert "do not have the target's law" in check.summary
