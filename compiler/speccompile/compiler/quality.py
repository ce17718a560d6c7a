"""How far a quantized model's predictions are from those of full precision, on a given text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Quality", "compare", "log_softmax"]

_Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Quality:
    """Means over `positions` predictions.

    `perplexity` of the engine and `reference_perplexity` of full precision; `kl_divergence` in nats
    from full precision to the engine; `top1_agreement` of the two. For a draft, `acceptance` is how
    often its first choice is the target's, and `sampled_acceptance` the probability that a token it
    draws at temperature 1 stands; ``reference_...`` are those of the unquantized draft.

    A draft that leaves tokens out gives them no probability: its KL divergence is infinite, and so
    is its perplexity, if one of them is in the text. Acceptance says what it is worth.
    """

    positions: int
    perplexity: float
    reference_perplexity: float
    kl_divergence: float
    top1_agreement: float
    acceptance: float | None = None
    reference_acceptance: float | None = None
    sampled_acceptance: float | None = None
    reference_sampled_acceptance: float | None = None

    @property
    def perplexity_increase(self) -> float:
        """Relative to full precision."""
        return self.perplexity / self.reference_perplexity - 1.0


def compare(
    tokens: Iterable[int | None],
    engine: Iterable[_Floats],
    reference: Iterable[_Floats],
    target: Iterable[_Floats] | None = None,
) -> Quality:
    """Compare logits given in chunks [rows, V] of equal sizes.

    `tokens` are the next tokens of the rows, None where the text ends; `target` are the
    full-precision logits of a draft's target.
    """
    sums = _Sums()
    following = iter(tokens)
    targets = iter(target) if target is not None else None
    for ours, exact in zip(engine, reference, strict=True):
        nexts = [next(following) for _ in range(len(ours))]
        sums.add(nexts, log_softmax(ours), log_softmax(exact))
        if targets is not None:
            sums.add_target(log_softmax(ours), log_softmax(exact), log_softmax(next(targets)))
    return sums.quality(is_draft=targets is not None)


def log_softmax(logits: _Floats) -> _Floats:
    """Along the last axis, in nats."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    result: _Floats = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return result


class _Sums:
    def __init__(self) -> None:
        self.rows = self.predicted = 0
        self.surprise = self.exact_surprise = self.divergence = self.agreed = 0.0
        self.accepted = self.exact_accepted = self.overlap = self.exact_overlap = 0.0

    def add(self, nexts: list[int | None], ours: _Floats, exact: _Floats) -> None:
        self.rows += len(nexts)
        for row, token in enumerate(nexts):
            if token is not None:
                self.predicted += 1
                self.surprise -= float(ours[row, token])
                self.exact_surprise -= float(exact[row, token])
        self.divergence += _divergence(exact, ours)
        self.agreed += _same_choice(ours, exact)

    def add_target(self, ours: _Floats, exact: _Floats, target: _Floats) -> None:
        self.accepted += _same_choice(ours, target)
        self.exact_accepted += _same_choice(exact, target)
        self.overlap += _overlap(ours, target)
        self.exact_overlap += _overlap(exact, target)

    def quality(self, *, is_draft: bool) -> Quality:
        def mean(total: float) -> float | None:
            return total / self.rows if is_draft else None

        return Quality(
            positions=self.rows,
            perplexity=float(np.exp(self.surprise / self.predicted)),
            reference_perplexity=float(np.exp(self.exact_surprise / self.predicted)),
            kl_divergence=self.divergence / self.rows,
            top1_agreement=self.agreed / self.rows,
            acceptance=mean(self.accepted),
            reference_acceptance=mean(self.exact_accepted),
            sampled_acceptance=mean(self.overlap),
            reference_sampled_acceptance=mean(self.exact_overlap),
        )


def _divergence(exact: _Floats, ours: _Floats) -> float:
    if np.isneginf(ours).any():  # the sum would multiply it by probabilities that round to 0
        return np.inf
    return float((np.exp(exact) * (exact - ours)).sum(dtype=np.float64))


def _same_choice(left: _Floats, right: _Floats) -> float:
    return float((left.argmax(axis=-1) == right.argmax(axis=-1)).sum())


def _overlap(left: _Floats, right: _Floats) -> float:
    return float(np.exp(np.minimum(left, right)).sum(dtype=np.float64))
