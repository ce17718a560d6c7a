"""The gates on made-up acceptance: what can be learned passes, what cannot is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest

from speccompile.compiler.tune.fit import Fit, fit, step_microseconds
from speccompile.compiler.tune.survey import Example
from speccompile.runtime.control.calibration import ece
from speccompile.runtime.control.features import FEATURES
from speccompile.runtime.control.predictor import Network, Predictor
from speccompile.runtime.control.samples import Sample
from speccompile.runtime.errors import RequestError

DEPTH = 3

Chance = Callable[[int, int, float], float]
"""That a token stands, by its prompt, its position and what its feature 0 says."""


def examples_of(chance: Chance, prompts: int = 10, rounds: int = 60) -> list[Example]:
    rng = np.random.default_rng(0)
    found: list[Example] = []
    for number in range(prompts * rounds):
        prompt, tested = number // rounds, True
        for position in range(DEPTH):
            features = rng.normal(size=len(FEATURES))
            features[1] = np.cos(37.0 * prompt)  # tells the prompt, and nothing else
            accepted = tested and bool(rng.random() < chance(prompt, position, features[0]))
            row = tuple(features.tolist())
            sample = Sample(number, position, row, tested, accepted)
            found.append(Example(prompt, sample, float(accepted)))
            tested = accepted
    return found


def sharp(prompt: int, position: int, feature: float) -> float:
    return 0.98 if feature > -0.8 else 0.02


def noise(prompt: int, position: int, feature: float) -> float:
    return 0.8


def sharp_later(prompt: int, position: int, feature: float) -> float:
    return sharp(prompt, position, feature) if position else 1.0


def by_prompt(prompt: int, position: int, feature: float) -> float:
    return 0.95 if prompt * 7 % 10 < 5 else 0.1


@pytest.fixture(scope="module")
def good() -> Fit:
    return fit(examples_of(sharp), seed=0)


def test_what_the_signals_tell_is_learned(good: Fit) -> None:
    assert good.auc > 0.9
    network = Network(good.predictor)
    for feature in (-2.0, 1.5):
        features = np.zeros(len(FEATURES), np.float32)
        features[0] = feature
        assert network.confidence(features, 0) == pytest.approx(sharp(0, 0, feature), abs=0.06)
    tested = [one.sample for one in examples_of(sharp) if one.sample.tested]
    assert good.stood == sum(one.accepted for one in tested)
    assert good.fell == len(tested) - good.stood


def test_it_depends_on_the_seed_alone(good: Fit) -> None:
    assert fit(examples_of(sharp), seed=0) == good


def test_noise_misses_the_gate() -> None:
    found = fit(examples_of(noise), seed=0)
    assert found.auc < 0.6
    assert any(words.startswith("AUC 0.") for words in found.misses)


def test_prompts_are_held_out_whole() -> None:
    """Who knew other tokens of the same prompt would do very well here."""
    assert fit(examples_of(by_prompt), seed=0).auc < 0.8


def test_a_position_that_hardly_ever_falls_has_no_temperature_of_its_own(good: Fit) -> None:
    """The most likely one for outcomes of one kind is as certain as can be."""
    assert len(good.predictor.temperatures) == DEPTH
    [temperature] = fit(examples_of(sharp_later), seed=0).predictor.temperatures
    assert 0.5 < temperature < 2.0


def test_the_gates() -> None:
    given = partial(Fit, Predictor.of(np.ones(225)), chance_ece=0.01)
    assert not given(stood=900, fell=32, ece=0.02, auc=0.80).misses
    assert given(stood=900, fell=31, ece=0.021, auc=0.799).misses == [
        "only 31 tokens fell, 32 are needed",
        "ECE 2.1% is above 2%",
        "AUC 0.799 is below 0.80",
    ]
    assert given(stood=3, fell=99, ece=0.0, auc=1.0).misses == [
        "only 3 tokens stood, 32 are needed"
    ]


def test_few_tokens_show_an_error_by_chance() -> None:
    """As often as `ece` finds one of outcomes that are drawn from the confidences."""
    examples = examples_of(
        lambda prompt, position, feature: 1 / (1 + np.exp(-2.0 - 2.0 * feature)), 5, 40
    )
    found = fit(examples, seed=0)
    rng, count = np.random.default_rng(0), found.stood + found.fell
    confidence = 1 / (1 + np.exp(-2.0 - 2.0 * rng.normal(size=count)))
    drawn = [ece(confidence, rng.random(count) < confidence) for _ in range(200)]
    assert found.chance_ece == pytest.approx(np.mean(drawn), rel=0.25)


def test_one_prompt_leaves_nothing_to_hold_out() -> None:
    with pytest.raises(RequestError, match="give at least 2"):
        fit(examples_of(sharp, prompts=1), seed=0)


def test_a_step_takes_time() -> None:
    assert step_microseconds(Predictor.of(np.ones(225))) > 0.0
