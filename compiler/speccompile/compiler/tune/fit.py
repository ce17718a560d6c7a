"""From examples to a calibrated predictor, and how good such a one is on texts it never saw."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.tune.survey import DEPTH, Example
from speccompile.compiler.tune.training import odds, train
from speccompile.runtime.control.calibration import auc, ece, fit_temperatures
from speccompile.runtime.control.features import Features
from speccompile.runtime.control.predictor import Network, Predictor
from speccompile.runtime.control.survival import Survival
from speccompile.runtime.errors import RequestError
from speccompile.runtime.signals import Signals

__all__ = ["LEAST_AUC", "LEAST_OUTCOMES", "MOST_ECE", "Fit", "fit", "step_microseconds"]

MOST_ECE = 0.02
LEAST_AUC = 0.80
LEAST_OUTCOMES = 32
"""Tokens that stood, and that fell: with fewer of either, no figure can be trusted."""

_FOLDS = 5
_BINS = 15  # of `ece`

_Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Fit:
    """A predictor, and figures of predictors made like it, each on prompts held out from it.

    They are over tokens whose predecessors all stood: `stood` of them stood, and `fell`. `ece` is
    the calibration error, of which a perfect predictor would show `chance_ece` on so few tokens;
    `auc` the probability that one which stands is given more than one which falls.
    """

    predictor: Predictor
    stood: int
    fell: int
    ece: float
    chance_ece: float
    auc: float

    @property
    def misses(self) -> list[str]:
        """The gates that it misses, in words."""
        fewest = min(self.stood, self.fell)
        gates = {
            f"only {fewest} tokens {'fell' if fewest == self.fell else 'stood'}, "
            f"{LEAST_OUTCOMES} are needed": fewest < LEAST_OUTCOMES,
            f"ECE {self.ece:.1%} is above {MOST_ECE:.0%}": self.ece > MOST_ECE,
            f"AUC {self.auc:.3f} is below {LEAST_AUC:.2f}": self.auc < LEAST_AUC,
        }
        return [words for words, missed in gates.items() if missed]


def fit(examples: Sequence[Example], seed: int) -> Fit:
    """Train and calibrate on all examples, and measure by cross-validation over the prompts.

    A prompt's log odds come from weights that were trained on other prompts. Temperatures are
    fitted to such log odds alone, and the confidences that are measured have temperatures from
    other prompts too. Raises RequestError for examples of one prompt, which leave nothing to hold
    out.
    """
    data = _Data.of(examples)
    prompts = np.unique(data.prompt)
    if len(prompts) < 2:
        raise RequestError("a predictor is measured on prompts held out: give at least 2")
    fold = np.searchsorted(prompts, data.prompt) % min(_FOLDS, len(prompts))
    held_out = np.empty(len(examples))
    for number in range(int(fold.max()) + 1):
        rest = fold != number
        held_out[~rest] = odds(data.trained(rest, seed), data.features[~rest])
    confidence = np.empty(len(examples))
    for number in range(int(fold.max()) + 1):
        temperatures = np.array(data.temperatures(held_out, fold != number))
        here = fold == number
        last = np.minimum(data.position[here], len(temperatures) - 1)
        confidence[here] = _sigmoid(held_out[here] / temperatures[last])
    everything = np.ones(len(examples), np.bool_)
    weights = data.trained(everything, seed)
    tested, stood = confidence[data.tested], data.accepted[data.tested]
    return Fit(
        Predictor.of(weights, data.temperatures(held_out, everything)),
        int(stood.sum()),
        int((~stood).sum()),
        ece(tested, stood),
        _chance_ece(tested),
        auc(tested, stood),
    )


def step_microseconds(predictor: Predictor) -> float:
    """What a token's features and its confidence take on this host: the median of many."""
    network, features = Network(predictor), Features()
    ahead, signals = Survival().ahead(), Signals(np.log(np.array([0.8, 0.2], np.float32)), 0)
    times: list[float] = []
    for _ in range(2000):
        features.begin(ahead)
        start = time.perf_counter()
        network.confidence(features.of(signals), 0)
        times.append(time.perf_counter() - start)
    return median(times) * 1e6


@dataclass(frozen=True)
class _Data:
    """Examples as arrays."""

    prompt: NDArray[np.int64]
    round: NDArray[np.int64]
    position: NDArray[np.int64]
    features: _Floats
    tested: NDArray[np.bool_]
    accepted: NDArray[np.bool_]
    label: _Floats

    @classmethod
    def of(cls, examples: Sequence[Example]) -> _Data:
        samples = [example.sample for example in examples]
        return cls(
            np.array([example.prompt for example in examples], np.int64),
            np.array([sample.round for sample in samples], np.int64),
            np.array([sample.position for sample in samples], np.int64),
            np.array([sample.features for sample in samples], np.float64),
            np.array([sample.tested for sample in samples], np.bool_),
            np.array([sample.accepted for sample in samples], np.bool_),
            np.array([example.label for example in examples], np.float64),
        )

    def trained(self, chosen: NDArray[np.bool_], seed: int) -> _Floats:
        """Weights: of what a token that was not tested would have been, nothing is known."""
        chosen = chosen & self.tested
        return train(self.features[chosen], self.label[chosen], seed)

    def temperatures(self, held_out: _Floats, chosen: NDArray[np.bool_]) -> tuple[float, ...]:
        """Those of the positions that have enough outcomes of both kinds; one for all positions
        where not even the first has."""
        tested = self.tested & chosen
        positions = 0
        while positions < DEPTH and self._enough(tested & (self.position == positions)):
            positions += 1
        if not positions:
            return fit_temperatures(held_out[tested, None], self.accepted[tested].astype(np.int64))
        rounds, row = np.unique(self.round[chosen], return_inverse=True)
        table = np.full((len(rounds), DEPTH), np.nan)
        table[row, self.position[chosen]] = held_out[chosen]
        stood = np.bincount(row, self.accepted[chosen], len(rounds)).astype(np.int64)
        return fit_temperatures(table[:, :positions], stood)

    def _enough(self, chosen: NDArray[np.bool_]) -> bool:
        stood = int(self.accepted[chosen].sum())
        return min(stood, int(chosen.sum()) - stood) >= LEAST_OUTCOMES


def _sigmoid(values: _Floats) -> _Floats:
    result: _Floats = 0.5 + 0.5 * np.tanh(0.5 * values)
    return result


def _chance_ece(confidence: _Floats) -> float:
    """The expected `ece` of events that happen with just these probabilities.

    A bin's mean is off by a normal variable, nearly, whose mean size is its deviation times
    sqrt(2 / pi).
    """
    bins = np.minimum((confidence * _BINS).astype(np.int64), _BINS - 1)
    variances = np.bincount(bins, confidence * (1.0 - confidence), _BINS)
    return float(np.sqrt(2.0 / np.pi * variances).sum() / max(len(confidence), 1))
