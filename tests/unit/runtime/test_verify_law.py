"""The law of sampled output, tested on the production loop.

Logits depend on the last two tokens, so that every token of a long stream is a draw from a known
law, given the two before it. Wrong rules have to fail the very test that the right one passes.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from speccompile.runtime import decoding as decoding_module
from speccompile.runtime.control.controller import Controller, FixedController
from speccompile.runtime.drafting.draft import Effort
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.ngram import NgramDraft
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.engine import Logits
from speccompile.runtime.proof.tables import law_of
from speccompile.runtime.request import Rule
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.sampling import Randomness, Sampling
from speccompile.runtime.session import Request, Session
from speccompile.runtime.verify import Verdict, verify
from tests.unit.runtime.tables import VOCABULARY, Table, TableEngine, make_table, near_table

TABLE = make_table(100, spread=1.5)
DRAFT_TABLE = near_table(TABLE, 101, noise=1.2)
TOKENS, TOKENS_OF_CONTROLS = 8_000, 14_000
FALSE_ALARM = 1e-9
Verify = Callable[[Logits, Proposal, Sequence[int], Sampler, Rule], Verdict]


@pytest.fixture(scope="module", autouse=True)
def remembered_numbers() -> Iterator[None]:
    """Every stream below uses the same seed: its numbers are computed once."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("draft", "accept", "emit"):
            patch.setattr(Randomness, name, cache(getattr(Randomness, name)))
        yield


class Branching:
    """Trees of two levels with three and two children."""

    def start(self) -> None: ...

    def effort(self, room: int) -> Effort | None:
        return Effort(min(room, 2), 9, branches={0: 3, 1: 2})

    def learn(self, outcome: object) -> None: ...


SAMPLINGS = [
    Sampling(0.5),
    Sampling(1.0),
    Sampling(1.5),
    Sampling(1.0, top_k=3),
    Sampling(1.0, top_p=0.7),
    Sampling(1.0, min_p=0.1),
]
RULES: list[Rule] = ["traversal", "token"]
CONTROLLERS: list[Controller] = [FixedController(3), Branching()]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_sampled_streams_have_the_law_of_the_target(sampling: Sampling) -> None:
    session = Session(engine(TABLE), ModelDraft(engine(DRAFT_TABLE)))
    tokens = stream(session, sampling)
    # Both branches of the rule have had work.
    assert 0.3 < session.statistics.acceptance < 0.95
    assert least_p_value(tokens, sampling) > FALSE_ALARM


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("controller", CONTROLLERS, ids=["chain", "tree"])
def test_so_does_every_rule_on_chains_and_trees(controller: Controller, rule: Rule) -> None:
    session = Session(engine(TABLE), ModelDraft(engine(DRAFT_TABLE)), controller)
    sampling = Sampling(1.0, seed=1)
    tokens = stream(session, sampling, rule=rule)
    # Both branches of the rule have had work.
    assert 0.3 < session.statistics.acceptance < 0.95
    assert least_p_value(tokens, sampling) > FALSE_ALARM


def test_a_derived_proposal_changes_no_token_of_a_sampled_stream() -> None:
    sampling = Sampling(0.5)
    session = Session(engine(TABLE), NgramDraft())
    tokens = stream(session, sampling)
    assert sum(session.statistics.accepted) > 400
    assert least_p_value(tokens, sampling) > FALSE_ALARM
    assert tokens[:2000] == stream(Session(engine(TABLE)), sampling, 1998)


def always_accept(
    logits: Logits, proposal: Proposal, tokens: Sequence[int], sampler: Sampler, rule: Rule
) -> Verdict:
    token = sampler.choose(logits[-1], tokens, proposal.tokens).token
    return Verdict(list(range(len(proposal.tokens) + 1)), token)


def residual_from_target(
    logits: Logits, proposal: Proposal, tokens: Sequence[int], sampler: Sampler, rule: Rule
) -> Verdict:
    path = verify(logits, proposal, tokens, sampler, rule).path
    return Verdict(path, sampler.choose(logits[path[-1]], tokens, proposal.path(path[-1])).token)


def wrong_draft_law(
    logits: Logits, proposal: Proposal, tokens: Sequence[int], sampler: Sampler, rule: Rule
) -> Verdict:
    laws = [law**1.5 / (law**1.5).sum() for law in proposal.laws if law is not None]
    declared = Proposal(proposal.tokens, proposal.parents, list(laws))
    return verify(logits, declared, tokens, sampler, rule)


@pytest.mark.parametrize("rule", [always_accept, residual_from_target, wrong_draft_law])
def test_wrong_rules_fail_the_same_test(monkeypatch: pytest.MonkeyPatch, rule: Verify) -> None:
    monkeypatch.setattr(decoding_module, "verify", rule)
    sampling = Sampling(1.0)
    session = Session(engine(TABLE), ModelDraft(engine(DRAFT_TABLE)))
    assert least_p_value(stream(session, sampling, TOKENS_OF_CONTROLS), sampling) < FALSE_ALARM


def test_a_draft_that_reuses_the_numbers_of_the_target_fails_the_same_test(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Proposals, acceptance and residual must be independent, or the rule proves nothing.
    emit = Randomness.emit

    def same(self: Randomness, root: int, node: int) -> int:
        return emit(self, root + node)

    monkeypatch.setattr(Randomness, "draft", same)
    sampling = Sampling(1.0)
    session = Session(engine(TABLE), ModelDraft(engine(DRAFT_TABLE)))
    assert least_p_value(stream(session, sampling, TOKENS_OF_CONTROLS), sampling) < FALSE_ALARM


def test_the_chi_square_test_is_calibrated() -> None:
    rng = np.random.default_rng(0)
    laws = rng.dirichlet(np.ones(VOCABULARY), VOCABULARY**2)
    found = [
        chi_square(np.stack([rng.multinomial(200, each) for each in laws]), laws)
        for _ in range(100)
    ]
    assert stats.kstest(found, "uniform").pvalue > 1e-6


def engine(table: Table) -> TableEngine:
    return TableEngine(table, capacity=TOKENS_OF_CONTROLS + 8)


def stream(
    session: Session, sampling: Sampling, count: int = TOKENS, rule: Rule = "traversal"
) -> list[int]:
    """One long sequence, its prompt of two tokens included."""
    request = Request(max_new_tokens=count, sampling=sampling, draft_length=3, rule=rule)
    return [0, 1, *session.generate([0, 1], request)]


def least_p_value(tokens: list[int], sampling: Sampling) -> float:
    """The smaller p-value of two tests: of each token, and of pairs, given the two before."""
    laws = np.stack([[law_of(row, sampling) for row in rows] for rows in TABLE[:VOCABULARY]])
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
