import numpy as np
import pytest

from speccompile.runtime.proof.acceptance import Acceptance


def test_right_and_wrong_probabilities() -> None:
    rng, right, wrong = np.random.default_rng(0), Acceptance(), Acceptance()
    for _ in range(5000):
        probability = float(rng.random())
        accepted = bool(rng.random() < probability)
        right.add(probability, accepted)
        wrong.add(min(probability + 0.05, 1.0), accepted)
    assert abs(right.z) < 4
    assert wrong.z < -5


def test_certain_decisions_add_nothing() -> None:
    acceptance = Acceptance()
    acceptance.add(1.0, accepted=True)
    assert acceptance.z == 0.0
    acceptance.add(0.5, accepted=True)
    assert acceptance.z == pytest.approx(0.5)  # the variance of one whole decision is the least
    assert Acceptance.of(acceptance.state()) == acceptance
