"""Train the predictor's perceptron: full-batch Adam on the cross-entropy, in plain numpy.

225 weights and some thousand examples take a second; a framework would take longer to import.
"""

from __future__ import annotations

from math import cos, pi

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.control.predictor import HIDDEN

__all__ = ["odds", "train"]

_Floats = NDArray[np.float64]

_STEPS = 200
_RATE = 0.02  # at first; it falls to 0 by a cosine
_DECAY = 1e-2  # of the squared weights, biases excepted
_FLATTEST = 1e-3  # a feature that varies less than this is a constant
_BETAS = 0.9, 0.999


def train(features: _Floats, labels: _Floats, seed: int) -> _Floats:
    """The weights [225] of `Predictor.of` for features [n, 12] and labels [n] from 0 to 1.

    Inputs are standardized while training, and that is then made part of the hidden units.
    """
    mean, spread = features.mean(axis=0), features.std(axis=0)
    scale = np.where(spread < _FLATTEST, 0.0, 1.0 / np.maximum(spread, _FLATTEST))
    inputs = (features - mean) * scale
    weights = _initial(inputs.shape[1], float(labels.mean()), seed)
    decay = _decay(weights, inputs.shape[1])
    moment, square = np.zeros_like(weights), np.zeros_like(weights)
    for step in range(1, _STEPS + 1):
        slope = _slope(weights, inputs, labels) + decay * weights
        moment += (1 - _BETAS[0]) * (slope - moment)
        square += (1 - _BETAS[1]) * (slope**2 - square)
        corrected = np.sqrt(square / (1 - _BETAS[1] ** step)) + 1e-8
        rate = _RATE * (0.5 + 0.5 * cos(pi * step / _STEPS)) / (1 - _BETAS[0] ** step)
        weights -= rate * moment / corrected
    hidden, bias, _, _ = _parts(weights, inputs.shape[1])
    hidden *= scale
    bias -= hidden @ mean
    return weights


def odds(weights: _Floats, features: _Floats) -> _Floats:
    """Log odds [n] of features [n, 12]."""
    hidden, bias, output, last = _parts(weights, features.shape[1])
    result: _Floats = np.maximum(features @ hidden.T + bias, 0.0) @ output + last
    return result


def _initial(inputs: int, mean: float, seed: int) -> _Floats:
    """He's, for the rectified units; the output begins at what is usual."""
    rng = np.random.default_rng(seed)
    weights = np.zeros(HIDDEN * (inputs + 1) + HIDDEN + 1)
    hidden, _, output, last = _parts(weights, inputs)
    hidden[:] = rng.normal(0.0, np.sqrt(2.0 / inputs), hidden.shape)
    output[:] = rng.normal(0.0, np.sqrt(1.0 / HIDDEN), HIDDEN)
    mean = min(max(mean, 1e-3), 1.0 - 1e-3)
    last[:] = np.log(mean / (1.0 - mean))
    return weights


def _decay(weights: _Floats, inputs: int) -> _Floats:
    decay = np.zeros_like(weights)
    hidden, _, output, _ = _parts(decay, inputs)
    hidden[:] = output[:] = _DECAY
    return decay


def _slope(weights: _Floats, inputs: _Floats, labels: _Floats) -> _Floats:
    """The gradient of the mean cross-entropy."""
    hidden, bias, output, last = _parts(weights, inputs.shape[1])
    units = np.maximum(inputs @ hidden.T + bias, 0.0)
    errors = (0.5 + 0.5 * np.tanh(0.5 * (units @ output + last)) - labels) / len(labels)
    back = np.outer(errors, output) * (units > 0.0)
    slope = np.empty_like(weights)
    of_hidden, of_bias, of_output, of_last = _parts(slope, inputs.shape[1])
    of_hidden[:], of_bias[:] = back.T @ inputs, back.sum(axis=0)
    of_output[:], of_last[:] = errors @ units, errors.sum()
    return slope


def _parts(weights: _Floats, inputs: int) -> tuple[_Floats, _Floats, _Floats, _Floats]:
    """Views of the hidden units, their biases, the output and its bias, as `Predictor` has them."""
    hidden, rest = np.split(weights, [HIDDEN * inputs])
    return hidden.reshape(HIDDEN, inputs), rest[:HIDDEN], rest[HIDDEN:-1], rest[-1:]
