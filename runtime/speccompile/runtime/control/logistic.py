"""Log odds, and shifts of them that are learned as outcomes come."""

from __future__ import annotations

from math import exp, log

import numpy as np

__all__ = ["Shifts", "logit", "sigmoid"]

_EDGE = 1e-3  # nothing is held to be more certain
_MEMORY = 1 - 1 / 500  # of outcomes: what differs from place to place hardly changes


def logit(probability: float) -> float:
    """The log odds, of a probability kept away from 0 and 1."""
    probability = min(max(probability, _EDGE), 1.0 - _EDGE)
    return log(probability / (1.0 - probability))


def sigmoid(odds: float) -> float:
    """The probability of log odds."""
    return 1.0 / (1.0 + exp(-odds)) if odds > -30.0 else 0.0


class Shifts:
    """Shifts of log odds, one for each class of events, each 0 until its events say otherwise.

    A step is Newton's for the logistic loss, on the information gathered so far.
    """

    def __init__(self, classes: int, worth: float) -> None:
        """`worth` is the information, in variances of an outcome, that speaks for the start."""
        self.values = np.zeros(classes)
        self._information = [worth] * classes

    def learn(self, index: int, predicted: float, happened: bool) -> None:
        """An event of a class, to which `predicted` was given, shift included."""
        predicted = min(max(predicted, _EDGE), 1.0 - _EDGE)
        information = _MEMORY * self._information[index] + predicted * (1.0 - predicted)
        self._information[index] = information
        self.values[index] += (happened - predicted) / information
