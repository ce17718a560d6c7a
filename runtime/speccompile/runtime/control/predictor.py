"""The complexity predictor: how probable it is that a proposed token stands.

A perceptron, 12 features -> 16 rectified units -> log odds, calibrated by a temperature for each
position. A draft's step takes milliseconds, so it may take microseconds: see `Network`.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from binascii import Error
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.control.features import FEATURES
from speccompile.runtime.control.logistic import sigmoid
from speccompile.runtime.records import parse_record, record_bytes, require

__all__ = ["HIDDEN", "PREDICTOR_SCHEMA", "Network", "Predictor", "parse_predictor"]

HIDDEN = 16
PREDICTOR_SCHEMA = 1

_INPUTS = len(FEATURES)
_WEIGHTS = HIDDEN * (_INPUTS + 1) + HIDDEN + 1

Weights = NDArray[np.float32]


@dataclass(frozen=True)
class Predictor:
    """A trained predictor, as it is kept.

    `weights` are base64 of little-endian floats: those of the hidden units [16, 12], their biases
    [16], those of the output [16] and its bias. A position's log odds are divided by its one of the
    `temperatures`; the last is that of all further positions.
    """

    schema: int
    weights: str
    temperatures: tuple[float, ...]

    @classmethod
    def of(
        cls, weights: NDArray[np.floating[Any]], temperatures: Sequence[float] = (1.0,)
    ) -> Predictor:
        """Of the weights in that order, [225]."""
        data = np.ascontiguousarray(weights, "<f4").tobytes()
        return cls(PREDICTOR_SCHEMA, b64encode(data).decode(), tuple(temperatures))

    def to_bytes(self) -> bytes:
        """Its file; raises ValueError for a temperature that is not finite."""
        return record_bytes(self)

    def array(self) -> Weights:
        """The weights, [225]; raises ValueError where they are not that many finite numbers."""
        try:
            data = b64decode(self.weights, validate=True)
        except Error as error:
            raise ValueError(f"weights are no base64: {error}") from None
        require(len(data) == 4 * _WEIGHTS, f"weights must be {_WEIGHTS} floats")
        array = np.frombuffer(data, "<f4").astype(np.float32)
        require(bool(np.isfinite(array).all()), "weights must be finite")
        return array


def parse_predictor(data: bytes, where: str) -> Predictor:
    """Read what `Predictor.to_bytes` wrote.

    Raises ArtifactError, beginning with `where` and naming the field, for anything else.
    """
    return parse_record(Predictor, data, where, schema=PREDICTOR_SCHEMA, check=_check)


class Network:
    """A predictor to compute with, in memory of its own.

    3 microseconds a token on one core of a 2-core x86-64 machine:

        python -m timeit -p -s "import numpy as np;
        from speccompile.runtime.control.predictor import Network, Predictor;
        network = Network(Predictor.of(np.ones(225))); features = np.ones(12, np.float32)"
        "network.confidence(features, 0)"
    """

    def __init__(self, predictor: Predictor) -> None:
        array = predictor.array()
        self._hidden, rest = np.split(array, [HIDDEN * _INPUTS])
        self._hidden = self._hidden.reshape(HIDDEN, _INPUTS)
        self._hidden_bias, self._output = rest[:HIDDEN], rest[HIDDEN:-1]
        self._bias = float(rest[-1])
        self._units = np.empty(HIDDEN, np.float32)
        self._temperatures = predictor.temperatures

    def odds(self, features: NDArray[np.float32]) -> float:
        """Log odds of one token's features [12], before calibration."""
        units = np.dot(self._hidden, features, out=self._units)
        units += self._hidden_bias
        np.maximum(units, 0.0, out=units)
        return float(np.dot(self._output, units)) + self._bias

    def confidence(self, features: NDArray[np.float32], position: int) -> float:
        """The probability that the token at `position` of a path stands, if those before it do."""
        last = len(self._temperatures) - 1
        return sigmoid(self.odds(features) / self._temperatures[min(position, last)])


def _check(predictor: Predictor) -> None:
    predictor.array()
    require(bool(predictor.temperatures), "temperatures is empty")
    for index, temperature in enumerate(predictor.temperatures):
        require(temperature > 0, f"temperatures[{index}] must be above 0")
