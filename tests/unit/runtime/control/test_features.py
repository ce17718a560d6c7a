from __future__ import annotations

from math import log

import numpy as np
import pytest

from speccompile.runtime.control.features import FEATURES, Features
from speccompile.runtime.control.survival import LONGEST, Trial
from speccompile.runtime.signals import Signals

SIGNALS = Signals(np.log(np.array([0.5, 0.25, 0.125, 0.125], np.float32)), 1)
AHEAD = 0.8 ** np.arange(1.0, LONGEST + 1)


def named(features: Features, match: int = 0) -> dict[str, float]:
    values = features.of(SIGNALS, match)
    assert values.dtype == np.float32
    return dict(zip(FEATURES, values.tolist(), strict=True))


def test_they_are_what_is_known_of_a_token() -> None:
    features = Features()
    features.start()
    features.begin(AHEAD)
    first, second = named(features), named(features, match=8)
    assert first["entropy"] == pytest.approx(1.75 * log(2))
    assert first["gap"] == pytest.approx(0.25)
    assert first["log_probability"] == pytest.approx(log(0.25))
    assert (first["position"], second["position"]) == pytest.approx((0.0, 1 / LONGEST))
    # Of the path before it, without the token itself.
    assert (first["survival"], second["survival"]) == (1.0, 0.25)
    assert second["usual_here"] == pytest.approx(0.8)
    assert (first["match"], second["match"]) == (0.0, 0.5)


def test_the_last_round_is_remembered_within_a_request() -> None:
    features = Features()
    features.begin(AHEAD)
    for _ in range(4):
        named(features)
    features.learn(Trial(1, True, None))
    features.begin(AHEAD)
    assert named(features)["last_share"] == 0.25
    features.start()
    features.begin(AHEAD)
    assert named(features)["last_share"] == 0.0


def test_an_impossible_token_has_finite_features() -> None:
    features = Features()
    features.begin(AHEAD)
    assert np.isfinite(features.of(Signals(np.array([0.0, -np.inf], np.float32), 1))).all()
