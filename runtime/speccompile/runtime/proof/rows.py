"""Two properties of a target engine that losslessness rests on: its rows, and its roll-back.

Verification computes several rows at once where plain decoding computes one, and forgets rows that
were rejected. Neither may change what the engine says about the rows that stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from speccompile.runtime.engine import Engine, Logits, prefill
from speccompile.runtime.proof.check import Check, Progress, silent

__all__ = ["ROLLBACK_TOLERANCE", "check_rollback", "check_rows", "tokens_needed"]

ROLLBACK_TOLERANCE = 0.02
"""Of the largest logit, for engines whose rows are not bit-equal: far above rounding, and far below
what a row of a rejected token does when it stays in the cache."""


def check_rows(
    target: Engine,
    prompts: Sequence[Sequence[int]],
    most: int,
    *,
    tolerance: float | None = None,
    progress: Progress = silent,
) -> Check:
    """Compare steps of 2 to `most` rows with single rows at the same contexts.

    Passes where no row prefers another token; whether the rows are equal bit by bit is reported.
    Where the arithmetic is so coarse that some must, a `tolerance` says instead how far rows may
    be apart, as a share of the largest logit.
    """
    compared, flips, difference, largest, equal = 0, 0, 0.0, 0.0, True
    for index, prompt in enumerate(prompts):
        progress("rows", index, len(prompts))
        single = _decode(target, prompt, most)
        largest = max(largest, float(np.abs(single.logits).max()))
        for count in range(2, most + 1):
            target.rollback(len(prompt))
            rows = target.step(single.tokens[:count])
            expected = single.logits[:count]
            compared += count
            flips += int((rows.argmax(-1) != expected.argmax(-1)).sum())
            difference = _larger(difference, _difference(rows, expected))
            equal = equal and np.array_equal(rows, expected)
    if tolerance is None:
        passed, allowed = flips == 0 and bool(np.isfinite(difference)), ""
    else:
        passed = difference <= tolerance * largest
        allowed = f" (at most {tolerance * largest:.2g})"
    bits = "bit-equal" if equal else f"largest difference {difference:.2g}{allowed}"
    return Check(
        "rows",
        passed,
        f"{compared} rows in steps of 2 to {most} against single rows: {bits}, "
        f"{flips or 'no'} other choice{'s' if flips > 1 else ''}",
        {
            "compared_rows": compared,
            "largest_step": most,
            "argmax_flips": flips,
            "max_abs_difference": _json(difference),
            "largest_logit": _json(largest),
            "tolerance": tolerance,
            "bit_equal": equal,
        },
    )


def check_rollback(
    target: Engine,
    prompts: Sequence[Sequence[int]],
    lengths: Sequence[int],
    *,
    exact: bool,
    progress: Progress = silent,
) -> Check:
    """Reject proposals of each of `lengths`, and compare what follows with a sequence without any.

    Half of a proposal is right and stays. `exact` asks for equal bits, which can be had where the
    engine's rows do not depend on their number; otherwise `ROLLBACK_TOLERANCE` applies.
    """
    difference, largest, equal = 0.0, 0.0, True
    for index, prompt in enumerate(prompts):
        progress("roll-back", index, len(prompts))
        plain = _decode(target, prompt, tokens_needed(lengths))
        largest = max(largest, float(np.abs(plain.logits).max()))
        target.rollback(0)
        prefill(target, prompt)
        # Rounds follow one another, as in production: an error stays, and cannot cancel another.
        root = 0
        for length in lengths:
            end = root + 1 + length // 2
            right = plain.tokens[end : root + 1 + length]
            wrong = [(token + 1) % plain.logits.shape[-1] for token in right]
            target.step([*plain.tokens[root:end], *wrong])
            target.rollback(len(prompt) + end)
            row, expected = target.step(plain.tokens[end : end + 1])[0], plain.logits[end]
            difference = _larger(difference, _difference(row, expected))
            equal = equal and np.array_equal(row, expected)
            root = end + 1
    limit = ROLLBACK_TOLERANCE * largest
    count = len(prompts) * len(lengths)
    bits = "bit-equal" if equal else f"largest difference {difference:.2g}"
    allowed = "bit-equal" if exact else f"at most {limit:.2g}"
    return Check(
        "roll-back",
        equal if exact else difference <= limit,
        f"after {count} rejected proposals, the next row is {bits} (required: {allowed})",
        {
            "rejected_proposals": count,
            "max_abs_difference": _json(difference),
            "tolerance": 0.0 if exact else limit,
            "bit_equal": equal,
        },
    )


def tokens_needed(lengths: Sequence[int]) -> int:
    """How far `check_rollback` continues a prompt."""
    return sum(2 + length // 2 for length in lengths) + max(lengths)


@dataclass(frozen=True)
class _Plain:
    """A plain continuation: row i of `logits` [N, V] is what the engine said after `tokens[i]`."""

    tokens: list[int]
    logits: Logits


def _decode(target: Engine, prompt: Sequence[int], count: int) -> _Plain:
    """Decode greedily from an empty cache, a row a step; leaves prompt and tokens in the cache."""
    target.rollback(0)
    row = prefill(target, prompt)
    tokens: list[int] = []
    rows: list[Logits] = []
    for _ in range(count):
        tokens.append(int(row.argmax()))
        row = target.step(tokens[-1:])[0].copy()
        rows.append(row)
    return _Plain(tokens, np.stack(rows))


def _difference(left: Logits, right: Logits) -> float:
    return float(np.abs(left - right).max())


def _larger(left: float, right: float) -> float:
    """The maximum, in which NaN wins: an engine that says NaN must not pass."""
    return float(np.maximum(left, right))


def _json(value: float) -> float | None:
    """JSON has no NaN and no infinity."""
    return value if np.isfinite(value) else None
