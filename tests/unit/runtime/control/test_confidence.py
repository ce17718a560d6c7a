from __future__ import annotations

import numpy as np
import pytest

from speccompile.runtime.control.confidence import Confidence
from speccompile.runtime.control.features import FEATURES
from speccompile.runtime.control.predictor import HIDDEN, Predictor
from speccompile.runtime.control.survival import LONGEST, Trial
from tests.unit.runtime.control.world import signals_of

AHEAD = 0.7 ** np.arange(1.0, LONGEST + 1)


def teach(confidence: Confidence, rounds: int = 800) -> None:
    """Sure tokens stand in nine of ten cases, others in three; both are as frequent."""
    rng = np.random.default_rng(0)
    for sure, luck in zip(rng.random(rounds) < 0.5, rng.random(rounds), strict=True):
        confidence.begin(AHEAD)
        confidence.of(signals_of(0.97 if sure else 0.3))
        stood = bool(luck < (0.9 if sure else 0.3))
        confidence.learn(Trial(int(stood), not stood, None))


def test_at_first_a_token_is_as_usual() -> None:
    confidence = Confidence()
    confidence.begin(AHEAD)
    assert confidence.of(signals_of(0.99)) == pytest.approx(0.7)
    assert confidence.of(signals_of(0.01)) == pytest.approx(0.7)
    assert confidence.seen == 2
    assert not confidence.trusted


def test_it_learns_what_signals_mean() -> None:
    confidence = Confidence()
    teach(confidence)
    assert confidence.trusted
    confidence.begin(AHEAD)
    assert confidence.of(signals_of(0.97)) == pytest.approx(0.9, abs=0.05)
    assert confidence.of(signals_of(0.3)) == pytest.approx(0.3, abs=0.08)


def test_only_tested_tokens_teach() -> None:
    confidence = Confidence()
    for _ in range(100):
        confidence.begin(AHEAD)
        for probability in (0.97, 0.3, 0.3):
            confidence.of(signals_of(probability))
        confidence.learn(Trial(1, False, None))
    assert not confidence.trusted
    confidence.begin(AHEAD)
    assert confidence.of(signals_of(0.3)) == pytest.approx(0.7)


def test_a_predictor_is_corrected_too() -> None:
    """It says even odds of everything but what its draft is sure of."""
    weights = np.zeros(HIDDEN * (len(FEATURES) + 1) + HIDDEN + 1)
    weights[FEATURES.index("probability")] = 1.0  # the first unit
    weights[HIDDEN * len(FEATURES)] = -0.5  # its bias
    weights[HIDDEN * (len(FEATURES) + 1)] = 2.0  # its part in the output
    confidence = Confidence(Predictor.of(weights))
    confidence.begin(AHEAD)
    assert confidence.of(signals_of(0.3)) == pytest.approx(0.5)
    assert confidence.of(signals_of(0.97)) == pytest.approx(1 / (1 + np.exp(-0.94)))
    teach(confidence)
    confidence.begin(AHEAD)
    assert confidence.of(signals_of(0.97)) == pytest.approx(0.9, abs=0.06)
    assert confidence.of(signals_of(0.3)) == pytest.approx(0.3, abs=0.08)
