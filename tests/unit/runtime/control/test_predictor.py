from __future__ import annotations

from base64 import b64encode
from dataclasses import replace

import numpy as np
import pytest

from speccompile.runtime.control.features import FEATURES
from speccompile.runtime.control.predictor import HIDDEN, Network, Predictor, parse_predictor
from speccompile.runtime.errors import ArtifactError

INPUTS = len(FEATURES)
WEIGHTS = np.random.default_rng(0).normal(size=HIDDEN * (INPUTS + 1) + HIDDEN + 1)


def test_it_computes_a_perceptron() -> None:
    network = Network(Predictor.of(WEIGHTS))
    hidden, rest = WEIGHTS[: HIDDEN * INPUTS].reshape(HIDDEN, INPUTS), WEIGHTS[HIDDEN * INPUTS :]
    for features in np.random.default_rng(1).normal(size=(20, INPUTS)):
        units = np.maximum(hidden @ features + rest[:HIDDEN], 0.0)
        expected = rest[HIDDEN:-1] @ units + rest[-1]
        found = network.odds(features.astype(np.float32))
        assert found == pytest.approx(expected, abs=1e-4)
        confidence = network.confidence(features.astype(np.float32), 0)
        assert confidence == pytest.approx(1 / (1 + np.exp(-expected)), abs=1e-4)


def test_a_position_has_its_temperature_and_the_last_goes_on() -> None:
    network = Network(Predictor.of(WEIGHTS, (1.0, 4.0)))
    features = np.ones(INPUTS, np.float32)
    odds = network.odds(features)
    for position, temperature in enumerate((1.0, 4.0, 4.0)):
        expected = 1 / (1 + np.exp(-odds / temperature))
        assert network.confidence(features, position) == pytest.approx(expected)


def test_it_is_kept_bit_for_bit() -> None:
    predictor = Predictor.of(WEIGHTS, (0.9, 1.1))
    again = parse_predictor(predictor.to_bytes(), "p.json")
    assert again == predictor
    assert (again.array() == WEIGHTS.astype(np.float32)).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": "no base64!"}, "weights are no base64"),
        ({"weights": b64encode(bytes(8)).decode()}, "weights must be 225 floats"),
        (
            {"weights": Predictor.of(np.full(len(WEIGHTS), np.nan)).weights},
            "weights must be finite",
        ),
        ({"temperatures": ()}, "temperatures is empty"),
        ({"temperatures": (1.0, 0.0)}, r"temperatures\[1\] must be above 0"),
    ],
)
def test_a_wrong_one_is_refused(change: dict[str, str], message: str) -> None:
    wrong = replace(Predictor.of(WEIGHTS), **change)  # type: ignore[arg-type]
    with pytest.raises(ArtifactError, match=f"^p.json: {message}"):
        parse_predictor(wrong.to_bytes(), "p.json")
