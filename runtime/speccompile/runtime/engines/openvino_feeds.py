"""What a graph lowered for OpenVINO is fed: the rows of one or several sequences, as one call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speccompile.runtime.engines.visibility import seen_rows

__all__ = ["Share", "begins", "feeds", "share_of"]


@dataclass(frozen=True)
class Share:
    """One sequence's rows in a call, from slot `start` on: `rows` asked for, then padding.

    `pages` are the sequence's when the call is made. Logits are computed for the last `wanted` of
    `rows`. `seen` [N, N] says which rows of the step each sees, and is None for a chain.
    """

    pages: Sequence[int]
    start: int
    rows: int
    wanted: int
    tokens: Sequence[int]
    seen: NDArray[np.bool_] | None

    @property
    def end(self) -> int:
        return self.start + len(self.tokens)

    @property
    def positions(self) -> NDArray[np.int64]:
        depths = np.arange(len(self.tokens)) if self.seen is None else self.seen.sum(axis=1) - 1
        return self.start + depths.astype(np.int64)

    @property
    def ancestors(self) -> NDArray[np.bool_]:
        """Which rows of the step each sees, [N, N], of a chain too."""
        return np.tri(len(self.tokens), dtype=np.bool_) if self.seen is None else self.seen

    @property
    def chained(self) -> int:
        """How many of the rows asked for come first and follow one another."""
        if self.seen is None:
            return self.rows
        is_chained = (self.seen == np.tri(len(self.tokens), dtype=np.bool_)).all(axis=1)
        return int(is_chained[: self.rows].cumprod().sum())


def share_of(
    pages: Sequence[int],
    start: int,
    tokens: Sequence[int],
    parents: Sequence[int] | None,
    last: int | None,
    min_rows: int,
) -> Share:
    """The rows of a step (see `Engine`), made at least `min_rows` by more behind the last.

    Raises ValueError where `parents` are not those of a tree of these rows.
    """
    rows = len(tokens)
    padded = [*tokens, *[tokens[-1]] * (min_rows - rows)]
    if parents is not None:
        parents = [*parents, *range(rows - 1, len(padded) - 1)]
    # Of a chain the paged operator is told nothing: it computes the same bits, and sooner.
    seen = seen_rows(len(padded), parents)
    return Share(pages, start, rows, rows if last is None else last, padded, seen)


def feeds(shares: Sequence[Share], min_rows: int) -> dict[str, NDArray[np.generic]]:
    """The inputs of a call (see `lower/paged_attention.py`): the shares' rows behind one another.

    The head computes at least `min_rows` rows too, the last one again where it is asked for fewer.
    """
    first = begins(len(share.tokens) for share in shares)
    heads = [
        np.arange(row + share.rows - share.wanted, row + share.rows)
        for row, share in zip(first, shares, strict=False)
    ]
    logit_rows = np.concatenate(heads)
    trees = [
        np.zeros(0, np.bool_) if share.seen is None else share.seen.ravel() for share in shares
    ]
    bias = np.concatenate(trees).astype(np.uint8)
    return {
        "input_ids": np.concatenate([share.tokens for share in shares])[None].astype(np.int64),
        "position_ids": np.concatenate([share.positions for share in shares])[None],
        "logit_rows": np.pad(logit_rows, (0, max(min_rows - len(logit_rows), 0)), "edge"),
        "past_lens": np.array([share.start for share in shares], np.int32),
        "subsequence_begins": first,
        "block_indices": np.concatenate([share.pages for share in shares]).astype(np.int32),
        "block_indices_begins": begins(len(share.pages) for share in shares),
        "max_context_len": np.array(max(share.end for share in shares), np.int32),
        "qq_bias": bias,
        "qq_bias_begins": begins(len(tree) for tree in trees) if len(bias) else first[:0],
    }


def begins(counts: Iterable[int]) -> NDArray[np.int32]:
    """Where each of `counts` begins when they follow one another, and the end of the last."""
    return np.array([0, *counts], np.int32).cumsum(dtype=np.int32)
