import numpy as np
import pytest

from speccompile.plugins.reference import Verdict, draw, target_walk, token_rule
from speccompile.runtime.drafting.proposal import Proposal
from speccompile.runtime.errors import EngineError
from speccompile.runtime.sampling import Purpose, Randomness, Sampling, law
from speccompile.runtime.verify import verify
from tests.unit.runtime.tables import VOCABULARY, make_table, near_table

TABLE = make_table(100)
DRAFT_TABLE = near_table(TABLE, 101)
Asked = list[tuple[int, Purpose]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """The random numbers that were used."""
    numbers: Asked = []
    uniform = Randomness.uniform

    def noted(self: Randomness, position: int, purpose: Purpose) -> float:
        numbers.append((position, purpose))
        return uniform(self, position, purpose)

    monkeypatch.setattr(Randomness, "uniform", noted)
    return numbers


def test_greedy_verification_needs_no_random_numbers(asked: Asked) -> None:
    choices = TABLE[0, :4].argmax(axis=-1).tolist()
    proposal = Proposal([*choices[:2], (choices[2] + 1) % VOCABULARY])
    verdict = verify(TABLE[0, :4], proposal, 9, Sampling(), Randomness(3))
    assert verdict == Verdict(2, choices[2])
    assert asked == []


def test_a_round_without_proposals_draws_one_number(asked: Asked) -> None:
    sampling = Sampling(1.0)
    verdict = verify(TABLE[0, :1], Proposal(), 9, sampling, Randomness(3))
    assert asked == [(9, Purpose.EMIT)]
    expected = draw(law(TABLE[0, 0], sampling), Randomness(3).uniform(9, Purpose.EMIT))
    assert verdict == Verdict(0, expected)


def test_derived_proposals_are_compared_with_the_draws_of_the_target() -> None:
    sampling = Sampling(0.8, top_k=4)
    rows, target = TABLE[1, :3], [law(row, sampling) for row in TABLE[1, :3]]
    numbers = [Randomness(3).uniform(position, Purpose.EMIT) for position in (9, 10, 11)]
    for token in range(VOCABULARY):
        verdict = verify(rows, Proposal([token, 1]), 9, sampling, Randomness(3))
        assert verdict == target_walk(target, [token, 1], numbers)


def test_drawn_proposals_are_judged_by_the_token_rule() -> None:
    sampling = Sampling(1.3, top_p=0.9)
    target = [law(row, sampling) for row in TABLE[1, :3]]
    laws = [law(row, sampling) for row in DRAFT_TABLE[1, :2]]
    for seed in range(50):
        randomness = Randomness(seed)
        accept, emit = (
            [randomness.uniform(position, purpose) for position in (9, 10, 11)]
            for purpose in (Purpose.ACCEPT, Purpose.EMIT)
        )
        tokens = [int(each.argmax()) for each in laws]
        verdict = verify(TABLE[1, :3], Proposal(tokens, laws), 9, sampling, randomness)
        assert verdict == token_rule(target, laws, tokens, accept, emit)


def test_disjoint_supports_give_a_token_of_the_target() -> None:
    sampling = Sampling(1.0, top_k=2)
    target, draft = np.arange(8, dtype=np.float32), -np.arange(8, dtype=np.float32)
    for seed in range(200):
        laws = [law(draft, sampling)]
        token = draw(laws[0], Randomness(seed).uniform(4, Purpose.DRAFT))
        rows = np.stack([target, target])
        verdict = verify(rows, Proposal([token], laws), 4, sampling, Randomness(seed))
        assert token in (0, 1)
        assert verdict.accepted == 0
        assert verdict.token in (6, 7)


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_an_error(poison: float, temperature: float) -> None:
    logits = np.zeros((2, 8), np.float32)
    logits[1, 3] = poison
    with pytest.raises(EngineError, match="not finite"):
        verify(logits, Proposal([1]), 5, Sampling(temperature), Randomness(0))
