"""Every check passes for what is sound, and each defect is caught by the check that is for it."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from scipy import stats

from speccompile.plugins.reference import Verdict, draw
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.ngram import NgramDraft
from speccompile.runtime.drafting.proposal import Draft, Proposal
from speccompile.runtime.engine import Engine, Logits
from speccompile.runtime.proof.check import Check
from speccompile.runtime.proof.chisquare import goodness_of_fit, survival
from speccompile.runtime.proof.greedy import check_greedy
from speccompile.runtime.proof.rows import check_rollback, check_rows
from speccompile.runtime.proof.sampled import check_sampling
from speccompile.runtime.proof.tables import open_tables
from speccompile.runtime.sampling import Purpose, Randomness, Sampling, law
from speccompile.runtime.session import Session
from speccompile.runtime.verify import verify
from tests.unit.runtime.tables import VOCABULARY, TableEngine, make_table, near_table

TARGET = make_table(1)
DRAFT = near_table(TARGET, 2)
PROMPTS = [[1, 2, 3, 1, 2], [4], [5, 0, 5, 0, 5, 0]]
LENGTHS = (1, 2, 3, 4, 5)
DRAWS = 600


class Noisy(TableEngine):
    """Adds to its logits something that depends on the steps it made before."""

    def __init__(self, noise: float) -> None:
        super().__init__(TARGET)
        self._noise = noise

    def step(self, tokens: Sequence[int], *, last: int | None = None) -> Logits:
        rows = super().step(tokens, last=last)
        rows += self._noise * np.random.default_rng(len(self.steps)).random(rows.shape, np.float32)
        return rows


class Keeping(TableEngine):
    """Keeps one row too many whenever it rolls back rejected ones."""

    def rollback(self, length: int) -> None:
        super().rollback(min(length + 1, self.length) if length else 0)


def sessions(target: Engine) -> Callable[[str], Session]:
    draft = TableEngine(DRAFT)

    def session(kind: str) -> Session:
        drafts: dict[str, Draft | None] = {
            "model": ModelDraft(draft),
            "ngram": NgramDraft(),
            "none": None,
        }
        return Session(target, drafts[kind])

    return session


def greedy(target: Engine, stop: frozenset[int] = frozenset()) -> Check:
    drafts, session = ("model", "ngram"), sessions(target)
    return check_greedy(target, session, drafts, PROMPTS, LENGTHS, tokens=24, stop_tokens=stop)


def sampling(draws: int = DRAWS) -> Check:
    return check_sampling(TableEngine(TARGET), TableEngine(DRAFT), PROMPTS[:1], draws)


@pytest.mark.parametrize("degrees", [1, 2, 3, 19, 144, 2000])
def test_survival_is_that_of_scipy(degrees: int) -> None:
    for p in (1 - 1e-9, 0.9, 0.5, 1e-3, 1e-9, 1e-12, 1e-100):
        statistic = float(stats.chi2.isf(p, degrees))
        expected = float(stats.chi2.sf(statistic, degrees))
        assert survival(statistic, degrees) == pytest.approx(expected, rel=1e-9)
    assert survival(0.0, degrees) == 1.0
    assert survival(1e6, degrees) == pytest.approx(float(stats.chi2.sf(1e6, degrees)), abs=1e-300)


def test_goodness_of_fit_is_that_of_scipy() -> None:
    probabilities = np.array([0.5, 0.3, 0.1, 0.1])
    observed = np.array([60, 20, 12, 8])
    fit = goodness_of_fit(observed, probabilities)
    expected = stats.chisquare(observed, probabilities * 100)
    assert fit.degrees == 3
    assert fit.statistic == pytest.approx(expected.statistic)
    assert fit.p == pytest.approx(expected.pvalue)


def test_rare_cells_are_pooled() -> None:
    rare = np.array([0.004] * 10 + [0.48, 0.48])
    observed = np.array([1] * 10 + [45, 45])
    fit = goodness_of_fit(observed, rare)
    # The ten hold 4 of 100, which is too little: one of the others joins them.
    assert fit.degrees == 1
    assert fit.statistic == pytest.approx((55 - 52) ** 2 / 52 + (45 - 48) ** 2 / 48)
    assert goodness_of_fit(np.array([3, 1]), np.array([0.9, 0.1])).p == 1.0


def test_what_cannot_happen_refutes_a_law() -> None:
    assert goodness_of_fit(np.array([999, 1]), np.array([1.0, 0.0])).p == 0.0


def test_rows_of_an_exact_engine() -> None:
    check = check_rows(TableEngine(TARGET), PROMPTS, 9)
    assert check.passed
    assert check.details["bit_equal"] is True
    assert check.details["compared_rows"] == len(PROMPTS) * sum(range(2, 10))
    assert "bit-equal" in check.summary


def test_rows_that_differ_but_choose_alike_pass_and_are_reported() -> None:
    check = check_rows(Noisy(1e-4), PROMPTS, 9)
    assert check.passed
    assert check.details["bit_equal"] is False
    assert "bit-equal" not in check.summary


@pytest.mark.parametrize("noise", [3.0, float("nan")])
def test_rows_that_choose_otherwise_fail(noise: float) -> None:
    assert not check_rows(Noisy(noise), PROMPTS, 9).passed


def test_roll_back_of_an_exact_engine() -> None:
    check = check_rollback(TableEngine(TARGET), PROMPTS, LENGTHS, exact=True)
    assert check.passed
    assert check.details["rejected_proposals"] == len(PROMPTS) * len(LENGTHS)


def test_roll_back_of_an_inexact_engine_has_a_tolerance() -> None:
    assert check_rollback(Noisy(1e-4), PROMPTS, LENGTHS, exact=False).passed
    assert not check_rollback(Noisy(1e-4), PROMPTS, LENGTHS, exact=True).passed
    assert not check_rollback(Noisy(3.0), PROMPTS, LENGTHS, exact=False).passed
    assert not check_rollback(Noisy(float("nan")), PROMPTS, LENGTHS, exact=False).passed


@pytest.mark.parametrize("exact", [True, False])
def test_a_wrong_roll_back_is_caught(exact: bool) -> None:
    assert not check_rollback(Keeping(TARGET), PROMPTS, LENGTHS, exact=exact).passed


def test_greedy_of_a_sound_session() -> None:
    check = greedy(TableEngine(TARGET))
    assert check.passed
    assert check.details["first_difference"] is None
    assert check.details["compared_tokens"] == 24 * len(PROMPTS) * 2 * len(LENGTHS)
    assert "lengths 1-5" in check.summary


def test_greedy_stops_where_the_model_does() -> None:
    check = greedy(TableEngine(TARGET), stop=frozenset({0, 3}))
    compared = check.details["compared_tokens"]
    assert check.passed
    assert isinstance(compared, int)
    assert 0 < compared < 24 * len(PROMPTS) * 2 * len(LENGTHS)


def test_nothing_compared_is_no_proof() -> None:
    assert not greedy(TableEngine(TARGET), stop=frozenset(range(VOCABULARY))).passed


def test_greedy_catches_a_wrong_roll_back() -> None:
    assert not greedy(Keeping(TARGET)).passed


def test_greedy_catches_a_verifier_that_believes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speccompile.runtime.session.verify", believing)
    check = greedy(TableEngine(TARGET))
    assert not check.passed
    first = check.details["first_difference"]
    assert isinstance(first, dict)
    assert first["draft"] == "model"
    assert first["plain"] != first["speculative"]
    assert first["margin"] > 0
    assert f"prompt {first['prompt']}, position {first['position']}" in check.summary


def test_the_first_difference_may_be_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("speccompile.runtime.session.verify", believing)
    check = greedy(TableEngine(TARGET), stop=frozenset({0, 3}))
    assert not check.passed


def test_tables_hold_the_laws_of_the_engines() -> None:
    rule = Sampling(temperature=0.7, top_k=3)
    tables = open_tables(TableEngine(TARGET), TableEngine(DRAFT), [4, 1], rule)
    assert tables.draft is not None
    assert tables.first.sum() == pytest.approx(1.0)
    np.testing.assert_allclose(law(tables.target[()], rule), tables.first)
    sampled = np.flatnonzero(tables.first)
    np.testing.assert_allclose(tables.second[sampled].sum(axis=1), 1.0)
    for token in map(int, sampled):
        np.testing.assert_allclose(law(tables.target[(token,)], rule), tables.second[token])
        assert (token,) in tables.draft


def test_sampling_of_a_sound_verifier() -> None:
    check = sampling()
    assert check.passed
    assert check.details["powerless"] == []
    tests = check.details["tests"]
    assert isinstance(tests, list)
    assert {test["draft"] for test in tests} == {"model", "ngram"}
    assert len(tests) == 2


def test_sampling_with_a_draft_that_is_the_target() -> None:
    assert check_sampling(TableEngine(TARGET), TableEngine(TARGET), PROMPTS[:1], DRAWS).passed


def test_sampling_without_a_model() -> None:
    check = check_sampling(TableEngine(TARGET), None, PROMPTS[:1], DRAWS)
    controls = check.details["control_p"]
    assert check.passed
    assert isinstance(controls, dict)
    assert controls.keys() == {"ngram"}


def test_too_few_draws_are_no_proof() -> None:
    check = sampling(draws=10)
    assert not check.passed
    assert check.details["powerless"]
    assert "too few" in check.summary


def believing(
    logits: Logits, proposal: Proposal, position: int, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """Accepts everything."""
    last = verify(logits[-1:], Proposal(), position, sampling, randomness)
    return Verdict(len(proposal.tokens), last.token)


def resampling(
    logits: Logits, proposal: Proposal, position: int, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """Takes the token after a rejection from the target's law instead of the residual."""
    verdict = verify(logits, proposal, position, sampling, randomness)
    target = law(logits[verdict.accepted], sampling)
    return Verdict(verdict.accepted, draw(target, randomness.uniform(position + 40, Purpose.EMIT)))


def shifted(
    logits: Logits, proposal: Proposal, position: int, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """Judges by the rows after the right ones."""
    rows = np.concatenate([logits[1:], logits[-1:]])
    return verify(rows, proposal, position, sampling, randomness)


def short(
    logits: Logits, proposal: Proposal, position: int, sampling: Sampling, randomness: Randomness
) -> Verdict:
    """Rolls an accepted token back with the rejected one, and emits in its place."""
    verdict = verify(logits, proposal, position, sampling, randomness)
    kept = max(verdict.accepted - 1, 0)
    return verdict if kept == verdict.accepted else Verdict(kept, verdict.token)


@pytest.mark.parametrize("wrong", [believing, resampling, shifted, short])
def test_sampling_catches_wrong_rules(
    wrong: Callable[..., Verdict], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speccompile.runtime.session.verify", wrong)
    check = sampling()
    assert not check.passed
    assert "do not have the target's law" in check.summary
