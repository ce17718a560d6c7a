"""Targets, drafts, and the laws of short texts (`runtime.proof.models`)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import numpy as np

from speccompile.runtime.proof.models import Model, Text, Vector, mixed, random_model

__all__ = [
    "PROMPT",
    "Distribution",
    "continued",
    "distance",
    "everywhere",
    "masked",
    "near",
    "pairs",
    "target_law",
    "total_variation",
]

Distribution = Mapping[Text, float]
"""Of the tokens behind the prompt."""

PROMPT: Text = (0,)


def near(model: Model, noise: Model, share: float = 0.4) -> Model:
    """A draft that is mostly of its target's opinion."""
    return mixed(noise, model, share)


def masked(model: Model, tokens: Sequence[int]) -> Model:
    """A draft that knows some of the tokens only."""

    def make(text: Text) -> Vector:
        law = model.law(text)
        law[[token not in tokens for token in range(len(law))]] = 0.0
        normal: Vector = law / law.sum()
        return normal

    return Model(make)


def everywhere(probabilities: Sequence[float]) -> Model:
    """The same law after every text."""
    return Model(lambda text: np.array(probabilities))


def pairs() -> dict[str, tuple[Model, Model]]:
    """Targets and drafts, awkward ones among them."""
    target, equal = random_model(3), random_model(15)
    return {
        "random": (random_model(1), random_model(2)),
        "close": (target, near(target, random_model(4))),
        "zeros in the target": (random_model(5, zeros=0.7), random_model(6)),
        "zeros in the draft": (random_model(7), random_model(8, zeros=0.7)),
        "zeros in both": (random_model(9, zeros=0.7), random_model(10, zeros=0.7)),
        "one-hot draft": (random_model(11), random_model(12, one_hot=True)),
        "one-hot target": (random_model(13, one_hot=True), random_model(14)),
        "disjoint": (everywhere([0.0, 0.3, 0.7]), everywhere([1.0, 0.0, 0.0])),
        "equal": (equal, equal),
    }


def target_law(model: Model, length: int) -> Distribution:
    """Of the first `length` tokens, as the model alone draws them."""
    return continued(model, {(): 1.0}, length)


def continued(model: Model, found: Distribution, length: int) -> Distribution:
    """The law of the first `length` tokens, where the model goes on behind shorter texts."""
    whole: dict[Text, float] = defaultdict(float)
    for text, probability in found.items():
        if len(text) >= length:
            whole[text[:length]] += probability
            continue
        following = {
            (*text, token): probability * float(each)
            for token, each in enumerate(model.law((*PROMPT, *text)))
            if each > 0.0
        }
        for longer, each in continued(model, following, length).items():
            whole[longer] += each
    return whole


def distance(left: Distribution, right: Distribution) -> float:
    """The largest difference of a probability."""
    return max(_differences(left, right))


def total_variation(left: Distribution, right: Distribution) -> float:
    """Half of the sum of all differences."""
    return sum(_differences(left, right)) / 2


def _differences(left: Distribution, right: Distribution) -> list[float]:
    return [abs(left.get(text, 0.0) - right.get(text, 0.0)) for text in {*left, *right}]
