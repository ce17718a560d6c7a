"""The law of sampled output, tested on the production loop.

Logits depend on the last two tokens, so that every token of a long stream is a draw from a known
law, given the two before it. Wrong rules have to fail the very test that the right one passes.
"""

from collections.abc import Callable, Iterator
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from speccompile.plugins.reference import Verdict
from speccompile.runtime import session as session_module
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.ngram import NgramDraft
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.engine import Logits
from speccompile.runtime.sampling import Purpose, Randomness, Sampling, law
from speccompile.runtime.session import Request, Session
from speccompile.runtime.verify import verify
from tests.unit.runtime.tables import VOCABULARY, Table, TableEngine, make_table, near_table

TABLE = make_table(100, spread=1.5)
DRAFT_TABLE = near_table(TABLE, 101, noise=1.2)
TOKENS = 20_000
FALSE_ALARM = 1e-9
Verify = Callable[[Logits, Proposal, int, Sampling, Randomness], Verdict]


@pytest.fixture(scope="module", autouse=True)
def remembered_numbers() -> Iterator[None]:
    """Every stream below uses the same seed: its numbers are computed once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Randomness, "uniform", cache(Randomness.uniform))
        yield


SAMPLINGS = [
    Sampling(0.5),
    Sampling(1.0),
    Sampling(1.5),
    Sampling(1.0, top_k=3),
    Sampling(1.0, top_p=0.7),
]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_sampled_streams_have_the_law_of_the_target(sampling: Sampling) -> None:
    session = Session(engine(TABLE), ModelDraft(engine(DRAFT_TABLE)))
    tokens = stream(session, sampling)
    # Both branches of the rule have had work.
    assert 0.3 < session.statistics.acceptance < 0.95
    assert least_p_value(tokens, sampling) > FALSE_ALARM


def test_a_derived_proposal_changes_no_token_of_a_sampled_stream() -> None:
    sampling = Sampling(0.5)
    session = Session(engine(TABLE), NgramDraft())
    tokens = stream(session, sampling)
    assert sum(session.statistics.accepted) > 1000
    assert least_p_value(tokens, sampling) > FALSE_ALARM
    assert tokens[:2000] == stream(Session(engine(TABLE)), sampling, 1998)


def always_accept(
    logits: Logits, proposal: Proposal, position: int, sampling: Sampling, randomness: Randomness
) -> Verdict:
    emit = verify(logits[-1:], Proposal(), position + len(proposal.tokens), sampling, randomness)
    return Verdict(len(proposal.tokens), emit.token)


def residual_from_target(
    logits: Logits, proposal: Proposal, position: int, sampling: Sampling, randomness: Randomness
) -> Verdict:
    accepted = verify(logits, proposal, position, sampling, randomness).accepted
    rest = logits[accepted : accepted + 1]
    return Verdict(
        accepted, verify(rest, Proposal(), position + accepted, sampling, randomness).token
    )


def wrong_draft_law(
    logits: Logits, proposal: Proposal, position: int, sampling: Sampling, randomness: Randomness
) -> Verdict:
    declared = [each**1.5 / (each**1.5).sum() for each in proposal.laws]
    return verify(logits, Proposal(proposal.tokens, declared), position, sampling, randomness)


@pytest.mark.parametrize("rule", [always_accept, residual_from_target, wrong_draft_law])
def test_wrong_rules_fail_the_same_test(monkeypatch: pytest.MonkeyPatch, rule: Verify) -> None:
    monkeypatch.setattr(session_module, "verify", rule)
    sampling = Sampling(1.0)
    session = Session(engine(TABLE), ModelDraft(engine(DRAFT_TABLE)))
    assert least_p_value(stream(session, sampling, TOKENS // 2), sampling) < FALSE_ALARM


def test_a_draft_that_reuses_the_numbers_of_the_target_fails_the_same_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Proposals, acceptance and residual must be independent, or the rule proves nothing.
    numbers = Randomness.uniform

    def same(self: Randomness, position: int, purpose: Purpose) -> float:
        return numbers(self, position, Purpose.EMIT)

    monkeypatch.setattr(Randomness, "uniform", same)
    sampling = Sampling(1.0)
    session = Session(engine(TABLE), ModelDraft(engine(DRAFT_TABLE)))
    assert least_p_value(stream(session, sampling, TOKENS // 2), sampling) < FALSE_ALARM


def test_the_chi_square_test_is_calibrated() -> None:
    rng = np.random.default_rng(0)
    laws = rng.dirichlet(np.ones(VOCABULARY), VOCABULARY**2)
    found = [
        chi_square(np.stack([rng.multinomial(200, each) for each in laws]), laws)
        for _ in range(100)
    ]
    assert stats.kstest(found, "uniform").pvalue > 1e-6


def engine(table: Table) -> TableEngine:
    return TableEngine(table, capacity=TOKENS + 8)


def stream(session: Session, sampling: Sampling, count: int = TOKENS) -> list[int]:
    """One long sequence, its prompt of two tokens included."""
    request = Request(max_new_tokens=count, sampling=sampling, draft_length=3)
    return [0, 1, *session.generate([0, 1], request)]


def least_p_value(tokens: list[int], sampling: Sampling) -> float:
    """The smaller p-value of two tests: of each token, and of pairs, given the two before."""
    laws = np.stack([[law(row, sampling) for row in rows] for rows in TABLE[:VOCABULARY]])
    pairs = laws[:, :, :, None] * laws[None]  # [a, b, c, d] = p(c | a, b) p(d | b, c)
    return min(
        chi_square(_counts(tokens, 1), laws.reshape(VOCABULARY**2, -1)),
        chi_square(_counts(tokens, 2), pairs.reshape(VOCABULARY**2, -1)),
    )


def _counts(tokens: list[int], span: int) -> NDArray[np.int64]:
    """How often each next `span` tokens followed each two: [V^2, V^span], without overlap."""
    counts = np.zeros((VOCABULARY**2, VOCABULARY**span), np.int64)
    for place in range(2, len(tokens) - span + 1, span):
        context = VOCABULARY * tokens[place - 2] + tokens[place - 1]
        cell = 0
        for token in tokens[place : place + span]:
            cell = VOCABULARY * cell + token
        counts[context, cell] += 1
    return counts


def chi_square(counts: NDArray[np.int64], laws: NDArray[np.float64]) -> float:
    """Chi-square over all contexts at once; cells that expect fewer than 5 are merged.

    Given its context, every block is a draw of its own, so that the sums over contexts add up.
    """
    if (counts[laws == 0.0] > 0).any():
        return 0.0
    statistic, freedom = 0.0, 0
    for observed, expected in zip(counts, counts.sum(axis=1, keepdims=True) * laws, strict=True):
        common = expected >= 5.0
        seen = [*observed[common], observed[~common].sum()]
        wanted = [*expected[common], expected[~common].sum()]
        if wanted[-1] < 5.0:
            last_seen, last_wanted = seen.pop(), wanted.pop()
            if not wanted:
                continue
            seen[-1] += last_seen
            wanted[-1] += last_wanted
        statistic += sum((s - w) ** 2 / w for s, w in zip(seen, wanted, strict=True))
        freedom += len(wanted) - 1
    assert freedom >= 30, "too few contexts were visited to judge"
    return float(stats.chi2.sf(statistic, freedom))
