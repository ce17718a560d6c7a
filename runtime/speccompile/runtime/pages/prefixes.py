"""Equal beginnings of sequences in the same pages, also those of sequences that have ended.

A full page is known by a key: the hash of the key of the page before it and of its own tokens. So
equal keys mean equal tokens from the start of the sequence on, and what a page holds follows from
those alone. The hash is one for which nobody finds two inputs of the same value: a weaker one would
let a request read rows of another's prompt.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import numpy as np

from speccompile.runtime.pages.pool import PagePool
from speccompile.runtime.pages.table import PageTable

__all__ = ["recall", "remember"]


def recall(pool: PagePool, tokens: Sequence[int]) -> PageTable:
    """A sequence that begins with the longest known run of full pages of `tokens`.

    The rows behind its `length` are still to be computed.
    """
    pages: list[int] = []
    key = b""
    for start in range(0, len(tokens) - pool.page_rows + 1, pool.page_rows):
        key = _key(key, tokens[start : start + pool.page_rows])
        page = pool.find(key)
        if page is None:
            break
        pages.append(page)
    return PageTable(pool, pages)


def remember(table: PageTable, tokens: Sequence[int]) -> None:
    """Make the full pages of `table` known, whose rows so far are those of `tokens`.

    A page that is known already takes the place of this sequence's own. What a sequence makes known
    it may still roll back and write again: that page is then copied, or forgotten (`PageTable`).
    """
    pool, pages = table.pool, table.pages
    full = len(tokens) // pool.page_rows
    if len(tokens) > table.length:
        raise ValueError(f"{len(tokens)} tokens do not fit the {table.length} rows of the sequence")
    first = full
    while first > 0 and pool.key(pages[first - 1]) is None:
        first -= 1
    key = (pool.key(pages[first - 1]) if first else None) or b""
    for index in range(first, full):
        start = index * pool.page_rows
        key = _key(key, tokens[start : start + pool.page_rows])
        known = pool.learn(pages[index], key)
        if known != pages[index]:
            pool.share(known)
            table.exchange(index, known)


def _key(previous: bytes, tokens: Sequence[int]) -> bytes:
    return sha256(previous + np.asarray(tokens, np.int64).tobytes()).digest()
