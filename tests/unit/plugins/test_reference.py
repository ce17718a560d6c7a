from collections.abc import Sequence
from itertools import product
from math import nextafter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speccompile.plugins.reference import Verdict, draw, greedy_walk, target_walk, token_rule
from tests.unit.plugins.enumeration import Law, Rule, chain_law, distance, outcomes, round_law

VOCABULARY = 3
LONGEST = 3
EXACT = 1e-12
Laws = dict[tuple[int, ...], Law]


def laws(seed: int, *, zeros: bool = False, one_hot: bool = False) -> Laws:
    """A law of its own for every context of up to `LONGEST` tokens."""
    rng = np.random.default_rng(seed)
    contexts = [
        context
        for length in range(LONGEST + 1)
        for context in product(range(VOCABULARY), repeat=length)
    ]
    drawn = {context: rng.dirichlet(np.ones(VOCABULARY)) for context in contexts}
    for law in drawn.values():
        if zeros:
            law[rng.integers(VOCABULARY)] = 0.0
        if one_hot:
            law[:] = np.arange(VOCABULARY) == law.argmax()
        law /= law.sum()
    return drawn


def everywhere(law: Sequence[float]) -> Laws:
    return {context: np.array(law) for context in laws(0)}


PAIRS = {
    "random": (laws(1), laws(2)),
    "close": (laws(3), {key: 0.6 * laws(3)[key] + 0.4 * law for key, law in laws(4).items()}),
    "zeros in the target": (laws(5, zeros=True), laws(6)),
    "zeros in the draft": (laws(7), laws(8, zeros=True)),
    "zeros in both": (laws(9, zeros=True), laws(10, zeros=True)),
    "one-hot draft": (laws(11), laws(12, one_hot=True)),
    "one-hot target": (laws(13, one_hot=True), laws(14)),
    "disjoint": (everywhere([0.0, 0.3, 0.7]), everywhere([1.0, 0.0, 0.0])),
    "equal": (laws(15), laws(15)),
}


def walk(
    target: Sequence[Law],
    draft: Sequence[Law],
    proposal: Sequence[int],
    accept: Sequence[float],
    emit: Sequence[float],
) -> Verdict:
    return target_walk(target, proposal, emit)


@pytest.mark.parametrize("pair", PAIRS)
@pytest.mark.parametrize("length", range(LONGEST + 1))
def test_token_rule_keeps_the_law_of_the_target(pair: str, length: int) -> None:
    target, draft = PAIRS[pair]
    law = round_law(token_rule, target, draft, length)
    assert distance(law, chain_law(target, (), length + 1)) <= EXACT


@pytest.mark.parametrize("pair", PAIRS)
def test_token_rule_accepts_as_often_as_a_lossless_rule_can(pair: str) -> None:
    target, draft = (model[()] for model in PAIRS[pair])
    accepted = sum(
        float(draft[token]) * mass
        for token in range(VOCABULARY)
        for verdict, mass in outcomes(token_rule, [target, target], [draft], [token]).items()
        if verdict.accepted
    )
    assert accepted == pytest.approx(float(np.minimum(target, draft).sum()), abs=EXACT)


@pytest.mark.parametrize("pair", ["random", "zeros in the target", "one-hot target", "disjoint"])
@pytest.mark.parametrize("length", range(LONGEST + 1))
def test_target_walk_keeps_the_law_for_every_derived_proposal(pair: str, length: int) -> None:
    target, _ = PAIRS[pair]
    for proposal in product(range(VOCABULARY), repeat=length):
        draft = {
            proposal[:index]: np.eye(VOCABULARY)[token] for index, token in enumerate(proposal)
        }
        others = {context: np.eye(VOCABULARY)[0] for context in target}
        law = round_law(walk, target, {**others, **draft}, length)
        assert distance(law, chain_law(target, (), length + 1)) <= EXACT


def always_accept(
    target: Sequence[Law],
    draft: Sequence[Law],
    proposal: Sequence[int],
    accept: Sequence[float],
    emit: Sequence[float],
) -> Verdict:
    return Verdict(len(proposal), draw(target[-1], emit[len(proposal)]))


def residual_from_target(
    target: Sequence[Law],
    draft: Sequence[Law],
    proposal: Sequence[int],
    accept: Sequence[float],
    emit: Sequence[float],
) -> Verdict:
    verdict = token_rule(target, draft, proposal, accept, emit)
    return Verdict(verdict.accepted, draw(target[verdict.accepted], emit[verdict.accepted]))


def wrong_draft_law(
    target: Sequence[Law],
    draft: Sequence[Law],
    proposal: Sequence[int],
    accept: Sequence[float],
    emit: Sequence[float],
) -> Verdict:
    declared = [law**1.2 / (law**1.2).sum() for law in draft]
    return token_rule(target, declared, proposal, accept, emit)


@pytest.mark.parametrize("rule", [always_accept, residual_from_target, wrong_draft_law])
@pytest.mark.parametrize("pair", ["random", "close"])
@pytest.mark.parametrize("length", range(1, LONGEST + 1))
def test_wrong_rules_fail_the_same_check(rule: Rule, pair: str, length: int) -> None:
    target, draft = PAIRS[pair]
    law = round_law(rule, target, draft, length)
    assert sum(law.values()) == pytest.approx(1.0, abs=EXACT)
    assert distance(law, chain_law(target, (), length + 1)) > 1e-3


@pytest.mark.parametrize("length", range(LONGEST + 1))
@pytest.mark.parametrize("seed", range(5))
def test_greedy_walk_emits_what_plain_greedy_decoding_does(seed: int, length: int) -> None:
    # Few distinct values: ties are frequent, and must fall as in plain decoding.
    rng = np.random.default_rng(seed)
    logits = {context: rng.integers(0, 3, VOCABULARY).astype(np.float32) for context in laws(0)}
    plain: tuple[int, ...] = ()
    while len(plain) <= length:
        plain = (*plain, int(logits[plain].argmax()))
    for proposal in product(range(VOCABULARY), repeat=length):
        rows = np.stack([logits[proposal[:index]] for index in range(length + 1)])
        accepted, token = greedy_walk(rows, proposal)
        assert (*proposal[:accepted], token) == plain[: accepted + 1]
        assert accepted == length or proposal[accepted] != plain[accepted]


@pytest.mark.parametrize("uniform", [0.0, 0.3, nextafter(1.0, 0.0)])
def test_token_rule_draws_from_the_target_where_rounding_leaves_no_residual(
    uniform: float,
) -> None:
    # 5e-324 x u rounds up to 5e-324: the proposal falls although both laws are equal.
    law = np.array([5e-324, 0.5, 0.5])
    verdict = token_rule([law, law], [law], [0], [nextafter(1.0, 0.0)], [uniform, uniform])
    assert verdict == Verdict(0, draw(law, uniform))


@settings(derandomize=True, max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from([0.0, 1e-300, 1e-17, 0.1, 1 / 3, 1.0, 7.0]), min_size=1, max_size=8),
    st.floats(0.0, 1.0, exclude_max=True),
)
def test_draw_returns_a_token_that_can_occur(weights: list[float], uniform: float) -> None:
    law = np.array(weights)
    if not law.any():
        law[-1] = 1.0
    for number in (uniform, 0.0, nextafter(1.0, 0.0)):
        assert law[draw(law, number)] > 0.0


def test_draw_cuts_the_unit_interval_by_the_law() -> None:
    law = np.array([0.0, 0.25, 0.0, 0.5, 0.25, 0.0])
    numbers = [0.0, 0.2499, 0.25, 0.7499, 0.75, nextafter(1.0, 0.0)]
    assert [draw(law, number) for number in numbers] == [1, 1, 3, 3, 4, 4]
    assert [draw(law * 8.0, number) for number in numbers] == [1, 1, 3, 3, 4, 4]


def test_token_rule_rejects_what_the_target_excludes_at_every_number() -> None:
    p, q = np.array([0.0, 1.0]), np.array([1.0, 0.0])
    assert token_rule([p, p], [q], [0], [0.0], [0.0, 0.0]) == Verdict(0, 1)
