"""Choices of a target and guesses of a draft, from rows of logits."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from speccompile.plugins.laws import draw, law, without
from speccompile.runtime.engine import Logits
from speccompile.runtime.errors import EngineError, RequestError
from speccompile.runtime.proof.chisquare import goodness_of_fit
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.sampling import Randomness, Sampling

ROW = np.array([0.5, 2.0, -1.0, 2.0, 1.0, -np.inf], np.float32)
AUDITED = Sampling(0.8, audited=True, seed=2)


class Ban:
    """Forbids the last token once more, and notes what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def apply(self, logits: Logits, tokens: Sequence[int]) -> None:
        self.asked.append(list(tokens))
        logits[tokens[-1]] = -np.inf


def test_greedy_takes_the_first_of_equals_and_says_how_clear_it_is() -> None:
    assert Sampler(Sampling()).choose(ROW, [0]) == (1, 0.0)
    assert Sampler(Sampling()).choose(ROW[2:], [0]) == (1, 1.0)
    assert Sampler(Sampling()).choose(ROW[:1], [0]) == (0, np.inf)


def test_a_token_is_drawn_with_the_number_of_its_position() -> None:
    sampling = Sampling(1.2, seed=7)
    expected = law(ROW, sampling.filters)
    assert expected is not None
    for place in range(1, 30):
        token = Sampler(sampling).choose(ROW, [0] * (place - 1), [3]).token
        assert token == draw(expected, Randomness(7).emit(place))


def test_processors_see_the_whole_sequence_and_leave_the_engines_memory_alone() -> None:
    row, ban = ROW.copy(), Ban()
    sampler = Sampler(Sampling(), [ban])
    assert sampler.choose(row, [5], [4, 1]).token == 3
    assert sampler.law(row, [5, 3])[3] == 0.0
    [guess] = sampler.guesses(row, [5], [1], 1, node=1)
    assert guess.token == 3
    assert ban.asked == [[5, 4, 1], [5, 3], [5, 1]]
    np.testing.assert_array_equal(row, ROW)


def test_where_nothing_may_follow_the_request_is_to_blame() -> None:
    nothing = np.full(4, -np.inf, np.float32)
    for sampling in (Sampling(), Sampling(1.0), AUDITED):
        with pytest.raises(RequestError, match="every token is forbidden"):
            Sampler(sampling).choose(nothing, [0])


@pytest.mark.parametrize("poison", [np.nan, np.inf])
@pytest.mark.parametrize("sampling", [Sampling(), Sampling(1.0), AUDITED], ids=str)
def test_logits_that_are_not_finite_are_an_error(poison: float, sampling: Sampling) -> None:
    row = ROW.copy()
    row[3] = poison
    for call in (Sampler(sampling).choose, Sampler(sampling).law):
        with pytest.raises(EngineError, match="not finite"):
            call(row, [0])


def test_greedy_guesses_are_the_best_in_order() -> None:
    guesses = Sampler(Sampling()).guesses(ROW, [0], [], 9, node=1)
    assert [guess.token for guess in guesses] == [1, 3, 4, 0, 2]  # never one without a chance
    assert all(guess.law is None for guess in guesses)


def test_drawn_guesses_come_without_replacement_from_the_laws_they_carry() -> None:
    sampling, randomness = Sampling(1.0, seed=3), Randomness(3)
    guesses = Sampler(sampling).guesses(ROW, [0, 0], [4], 9, node=2)
    left = law(ROW, sampling.filters)
    assert left is not None
    for sibling, guess in enumerate(guesses):
        np.testing.assert_array_equal(guess.law, left)
        assert guess.token == draw(left, randomness.draft(1, 1024 * sibling + 2))
        left = without(left, guess.token)
    assert sorted(guess.token for guess in guesses) == [0, 1, 2, 3, 4]


def test_drafters_draw_with_numbers_of_their_own() -> None:
    sampler = Sampler(Sampling(2.0, seed=3))
    drawn = {
        tuple(
            sampler.of_drafter(drafter).guesses(ROW, [0] * place, [], 1, node=1)[0].token
            for place in range(1, 40)
        )
        for drafter in range(4)
    }
    assert len(drawn) == 4


def test_an_audited_choice_has_the_law_of_the_target() -> None:
    expected = law(ROW, AUDITED.filters)
    assert expected is not None
    sampler = Sampler(AUDITED)
    counts = Counter(sampler.choose(ROW, [0] * place).token for place in range(1, 4001))
    observed = np.array([counts[token] for token in range(len(ROW))])
    assert goodness_of_fit(observed, expected.astype(np.float64)).p > 1e-6
    assert goodness_of_fit(observed, np.roll(expected, 1).astype(np.float64)).p < 1e-9


def test_an_audited_draft_of_the_same_opinion_guesses_what_the_target_chooses() -> None:
    target, draft = Sampler(AUDITED), Sampler(AUDITED)
    for place in range(1, 50):
        guesses = draft.guesses(ROW, [0] * place, [], 2, node=1)
        choice = target.choose(ROW, [0] * place)
        assert guesses[0] == (choice.token, None)
        assert guesses[1].token != choice.token
        assert choice.margin > 0.0


def test_the_noise_of_draft_and_target_makes_them_agree_more_often_than_chance() -> None:
    rng = np.random.default_rng(0)
    agreed = chance = 0.0
    for place in range(1, 400):
        row = rng.normal(0.0, 2.0, 12).astype(np.float32)
        near = row + rng.normal(0.0, 0.5, 12).astype(np.float32)
        sampler = Sampler(AUDITED)
        agreed += sampler.choose(row, [0] * place).token == sampler.choose(near, [0] * place).token
        chance += float(sampler.law(row, []) @ sampler.law(near, []))
    assert agreed > 1.4 * chance
