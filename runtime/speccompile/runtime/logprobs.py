"""The logarithms of the target's own probabilities, for who asks how sure it was."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from speccompile.runtime.engine import Logits

__all__ = ["TokenLogprobs", "logprobs"]


class TokenLogprobs(NamedTuple):
    """A token that was emitted, its logarithmic probability, and the best tokens with theirs."""

    token: int
    logprob: float
    top: list[tuple[int, float]]


def logprobs(row: Logits, token: int, count: int) -> TokenLogprobs:
    """What the target's `row` [V] says of `token` and of the `count` best tokens, the best first.

    The row is the raw one, before temperature and processors: so the numbers are the model's, equal
    to those of a plain pass over the text, however the tokens were chosen. Hence a token that the
    request forbids may be among the best, and the one that was emitted need not be. Natural
    logarithms, in fp64; of equals, the lowest token comes first.
    """
    values = row.astype(np.float64)
    values -= values.max()
    values -= np.log(np.exp(values).sum())
    return TokenLogprobs(
        token, float(values[token]), [(best, float(values[best])) for best in _best(row, count)]
    )


def _best(row: Logits, count: int) -> list[int]:
    count = min(count, len(row))
    if not count:
        return []
    candidates = np.flatnonzero(row >= np.partition(row, -count)[-count])
    order = np.argsort(-row[candidates], kind="stable")
    best: list[int] = candidates[order[:count]].tolist()
    return best
