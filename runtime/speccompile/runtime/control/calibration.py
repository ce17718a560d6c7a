"""Whether confidences are what they say: measures of it, and temperatures that make them so."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["auc", "ece", "fit_temperatures"]

_BINS = 15
_TEMPERATURES = np.geomspace(0.2, 5.0, 161)  # 2 % apart: finer than what samples can tell
_EDGE = 1e-6


def ece(confidence: NDArray[np.float64], happened: NDArray[np.bool_]) -> float:
    """Expected calibration error, from 0 to 1: over 15 equal bins of `confidence` [n], the mean
    distance between what they promise and how often it `happened` [n] (Guo et al., 2017)."""
    bins = np.minimum((confidence * _BINS).astype(np.int64), _BINS - 1)
    promised = np.bincount(bins, confidence, _BINS)
    kept = np.bincount(bins, happened.astype(np.float64), _BINS)
    return float(np.abs(promised - kept).sum() / max(len(confidence), 1))


def auc(confidence: NDArray[np.float64], happened: NDArray[np.bool_]) -> float:
    """The probability that an event which happened had the higher confidence of two, a tie counting
    half; 0.5 where all did or none."""
    order, ranks = np.unique(confidence, return_inverse=True)
    counts = np.bincount(ranks, minlength=len(order))
    middle = np.cumsum(counts) - (counts - 1) / 2.0  # the mean rank of equals, from 1
    of_those, others = int(happened.sum()), int((~happened).sum())
    if not of_those or not others:
        return 0.5
    above = middle[ranks][happened].sum() - of_those * (of_those + 1) / 2.0
    return float(above / (of_those * others))


def fit_temperatures(odds: NDArray[np.float64], stood: NDArray[np.int64]) -> tuple[float, ...]:
    """Sequential temperature scaling, of log odds [rounds, positions] (NaN where none was drafted).

    `stood` [rounds] tokens of a round's path stood. What decides is the survival of a path, so each
    position's temperature, one after the other, is the one that makes the product up to it most
    likely. (Errors of the positions before are made good, as far as one number can.)
    """
    survival = np.ones(len(odds))
    temperatures: list[float] = []
    for position in range(odds.shape[1]):
        drafted = ~np.isnan(odds[:, position])
        if not drafted.any():
            break
        here, before = odds[drafted, position], survival[drafted]
        stands = stood[drafted] > position
        losses = [_loss(before * _sigmoid(here / one), stands) for one in _TEMPERATURES]
        temperature = float(_TEMPERATURES[int(np.argmin(losses))])
        temperatures.append(temperature)
        survival[drafted] = before * _sigmoid(here / temperature)
    return tuple(temperatures) or (1.0,)


def _sigmoid(odds: NDArray[np.float64]) -> NDArray[np.float64]:
    result: NDArray[np.float64] = 0.5 + 0.5 * np.tanh(0.5 * odds)
    return result


def _loss(confidence: NDArray[np.float64], happened: NDArray[np.bool_]) -> float:
    """Mean cross-entropy, in nats."""
    given = np.where(happened, confidence, 1.0 - confidence)
    return float(-np.log(np.maximum(given, _EDGE)).mean())
