"""Real laws, small enough to sample from many thousand times.

Under top-k, a row of logits over the whole vocabulary is a law over a few tokens. Rows after a
context, and after each token that may follow it, are all that two tokens of output depend on; an
engine that reads them from a table lets the production loop run without a model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.laws import mass
from speccompile.runtime.engine import Engine, Logits, prefill
from speccompile.runtime.proof.models import Text, TextEngine
from speccompile.runtime.sampler import Sampler
from speccompile.runtime.sampling import Sampling

__all__ = ["TableEngine", "Tables", "law_of", "open_tables", "sharpened"]

Law = NDArray[np.float64]


@dataclass(frozen=True)
class Tables:
    """Logits over the few tokens [C] that can occur, by the tokens that came before: () or (x,).

    The draft's are sharpened. `first` [C] is the target's law of the next token, `second` [C, C]
    that of the one after it.
    """

    target: Mapping[tuple[int, ...], Logits]
    draft: Mapping[tuple[int, ...], Logits] | None
    first: Law
    second: Law


def open_tables(
    target: Engine, draft: Engine | None, context: Sequence[int], sampling: Sampling
) -> Tables:
    """Ask the engines for every row that the two tokens after `context` can depend on."""
    engines = [(target, _unchanged), (draft, sharpened)] if draft else [(target, _unchanged)]
    rows: list[dict[tuple[int, ...], Logits]] = []
    for engine, change in engines:
        engine.rollback(0)
        rows.append({(): change(prefill(engine, context))})
    may_follow = _support([table[()] for table in rows], sampling)
    for (engine, change), table in zip(engines, rows, strict=True):
        engine.rollback(0)
        prefill(engine, context)  # again: the two may share a cache
        for token in may_follow:
            engine.rollback(len(context))
            table[(token,)] = change(engine.step([token])[0])
    kept = _support([row for table in rows for row in table.values()], sampling)
    small = [{_numbers(path, kept): row[kept] for path, row in table.items()} for table in rows]
    first = law_of(rows[0][()], sampling)[kept]
    second = np.zeros((len(kept), len(kept)))
    for token in may_follow:
        second[kept.index(token)] = law_of(rows[0][(token,)], sampling)[kept]
    return Tables(small[0], small[1] if draft else None, first, second)


def law_of(row: Logits, sampling: Sampling) -> Law:
    """The law [V] that tokens of a row are drawn by, to the last bit: masses over their sum."""
    whole = mass(Sampler(sampling).law(row, ())).astype(np.float64)
    exact: Law = whole / whole.sum()
    return exact


def sharpened(row: Logits) -> Logits:
    """A draft's logits, doubled: a draft as good as its target would hide that it is believed."""
    return row * np.float32(2)


class TableEngine(TextEngine):
    """Plays an engine whose rows after a `stem` and a `root` token are those of a table [C].

    The prompt is the stem, and the root the one token that can follow it: so every token of
    interest comes from a round. The vocabulary has two tokens more, C and C + 1, for stem and root.
    Rows deeper than the table are uniform: nothing that is looked at depends on them.
    """

    def __init__(
        self, table: Mapping[tuple[int, ...], Logits], stem: Sequence[int], root: int
    ) -> None:
        super().__init__()
        size = len(table[()])
        self._stem, self._root = [*stem, root], root
        never = np.full(2, -np.inf, np.float32)
        self._rows = {path: np.append(row, never) for path, row in table.items()}
        self._to_root = np.full(size + 2, -np.inf, np.float32)
        self._to_root[root] = 0.0
        self._deeper = np.append(np.zeros(size, np.float32), never)

    def _row(self, text: Text) -> Logits:
        depth = len(self._stem)
        if len(text) < depth:
            return self._to_root
        return self._rows.get(text[depth:], self._deeper)


def _unchanged(row: Logits) -> Logits:
    return row.copy()


def _support(rows: Sequence[Logits], sampling: Sampling) -> list[int]:
    """The tokens that any of the rows may yield, in ascending order."""
    tokens = np.concatenate([np.flatnonzero(law_of(row, sampling)) for row in rows])
    return [int(token) for token in np.unique(tokens)]


def _numbers(path: Sequence[int], kept: Sequence[int]) -> tuple[int, ...]:
    return tuple(kept.index(token) for token in path)
