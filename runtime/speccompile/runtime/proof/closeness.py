"""How close the logits of one engine are to those of another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.engine import Logits

__all__ = ["HALF_TOLERANCE", "ROUNDED_TOLERANCE", "Closeness", "closeness", "row_tolerance"]

HALF_TOLERANCE = 2e-2
"""The largest error over the largest logit, of engines that compute in fp16."""

ROUNDED_TOLERANCE = 0.05
"""The mean KL divergence in nats, of engines that round weights to INT8."""


@dataclass(frozen=True)
class Closeness:
    """Largest error over the largest logit, mean KL divergence in nats, agreement of the first
    choice; None for what is not finite."""

    relative_error: float | None
    kl_divergence: float | None
    top1_agreement: float

    def refusal(self, precision: str) -> str | None:
        """Why that is too far for weights of this precision, unless it is not."""
        if precision in ("int8", "mixed"):
            name, found, limit = "KL divergence", self.kl_divergence, ROUNDED_TOLERANCE
        else:
            name, found, limit = "relative error", self.relative_error, HALF_TOLERANCE
        if found is None:
            return f"{name} not finite"
        return f"{name} {found:.2g} is above {limit:g}" if found > limit else None


def closeness(expected: Logits, actual: Logits) -> Closeness:
    """Of two arrays [N, V]."""
    with np.errstate(invalid="ignore"):
        p, q = _log_softmax(expected), _log_softmax(actual)
        error = np.abs(actual - expected).max() / np.abs(expected).max()
        divergence = (np.exp(p) * (p - q)).sum(axis=-1).mean()
    return Closeness(
        relative_error=_finite(float(error)),
        kl_divergence=_finite(float(divergence)),
        top1_agreement=float((expected.argmax(-1) == actual.argmax(-1)).mean()),
    )


def row_tolerance(precision: str) -> float:
    """How far rows of one engine may be apart that are the same but for the size of their step, as
    a share of the largest logit. Where activations are rounded to INT8, a little becomes a step."""
    return 5e-2 if precision in ("int8", "mixed") else HALF_TOLERANCE


def _log_softmax(logits: Logits) -> NDArray[np.float64]:
    shifted = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    result: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
