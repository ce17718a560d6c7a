from __future__ import annotations

import numpy as np
import pytest

from speccompile.compiler.tune.training import odds, train
from speccompile.runtime.control.calibration import auc
from speccompile.runtime.control.features import FEATURES
from speccompile.runtime.control.predictor import Network, Predictor

RNG = np.random.default_rng(0)
FEATURES_OF = RNG.normal(3.0, 2.0, (800, len(FEATURES)))
ODDS = 2.0 * np.abs(FEATURES_OF[:, 2] - 3.0) - 3.0  # no single feature orders this
HAPPENED = RNG.random(800) < 1 / (1 + np.exp(-ODDS))


def test_it_learns_what_no_line_separates_and_says_how_sure_it_is() -> None:
    weights = train(FEATURES_OF[:600], (ODDS[:600] > 0.0).astype(float), seed=1)
    assert auc(odds(weights, FEATURES_OF[600:]), ODDS[600:] > 0.0) > 0.95
    soft = train(FEATURES_OF[:600], 1 / (1 + np.exp(-ODDS[:600])), seed=1)
    told = 1 / (1 + np.exp(-odds(soft, FEATURES_OF[600:])))
    assert np.abs(told - 1 / (1 + np.exp(-ODDS[600:]))).mean() < 0.06


def test_the_runtime_computes_the_same() -> None:
    weights = train(FEATURES_OF, HAPPENED.astype(float), seed=1)
    network = Network(Predictor.of(weights))
    for features, expected in zip(FEATURES_OF[:20], odds(weights, FEATURES_OF[:20]), strict=True):
        assert network.odds(features.astype(np.float32)) == pytest.approx(expected, abs=1e-3)


def test_a_seed_gives_the_same_weights() -> None:
    labels = HAPPENED[:100].astype(float)
    weights = train(FEATURES_OF[:100], labels, seed=1)
    assert (train(FEATURES_OF[:100], labels, seed=1) == weights).all()
    assert (train(FEATURES_OF[:100], labels, seed=2) != weights).any()


def test_a_constant_feature_has_no_say() -> None:
    features = FEATURES_OF.copy()
    features[:, 5] = 0.25
    weights = train(features, HAPPENED.astype(float), seed=1)
    changed = features.copy()
    changed[:, 5] = 100.0
    assert (odds(weights, changed) == odds(weights, features)).all()
    everything = train(features, np.ones(len(features)), seed=1)
    assert np.isfinite(everything).all()
    assert (odds(everything, features) > 3.0).all()
