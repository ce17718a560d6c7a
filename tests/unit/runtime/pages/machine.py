"""A pool in use: sequences over simulated memory, beside lists of what each of them must read."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from speccompile.runtime.errors import RequestError
from speccompile.runtime.pages.pool import PagePool
from speccompile.runtime.pages.prefixes import recall, remember
from speccompile.runtime.pages.table import PageTable

__all__ = ["PAGES", "PAGE_ROWS", "Machine"]

PAGES, PAGE_ROWS = 24, 4
_SEQUENCES = 7


@dataclass
class _Sequence:
    """`rows` are what must be read: each stands for its token and all before it, as keys and values
    do. In a page of a sequence that began otherwise they would not be the same."""

    table: PageTable
    tokens: list[int]
    rows: list[int]

    def add(self, tokens: Sequence[int]) -> None:
        for token in tokens:
            self.tokens.append(token)
            self.rows.append(hash((self.rows[-1] if self.rows else 0, token)))


class Machine:
    """Does random things to a pool and checks everything after each; `seed` says which."""

    def __init__(self, seed: int) -> None:
        self.pool = PagePool(PAGES, PAGE_ROWS)
        self.seen: Counter[str] = Counter()
        self._random = random.Random(seed)
        self._memory = [[0] * PAGE_ROWS for _ in range(PAGES)]
        self._sequences: list[_Sequence] = []

    def run(self, operations: int) -> None:
        actions = (
            self._start,
            self._append,
            self._append,
            self._propose,
            self._rollback,
            self._fork,
            self._remember,
            self._finish,
        )
        for _ in range(operations):
            action = self._random.choice(actions) if self._sequences else self._start
            action()
            self._check()

    def finish(self) -> None:
        while self._sequences:
            self._finish()
            self._check()

    def _start(self) -> None:
        """A prompt: few different tokens, so that it often begins as another."""
        if len(self._sequences) == _SEQUENCES:
            return
        prompt = self._tokens(20)
        table = recall(self.pool, prompt[:-1])
        self.seen["pages recalled"] += len(table.pages)
        sequence = _Sequence(table, [], [])
        sequence.add(prompt[: table.length])
        self._sequences.append(sequence)
        self._check()
        self._write(sequence, prompt[table.length :])

    def _append(self) -> None:
        self._write(self._any(), self._tokens(8))

    def _propose(self) -> None:
        """A round: rows of which some stay."""
        sequence = self._any()
        before = len(sequence.tokens)
        if self._write(sequence, self._tokens(8)):
            self._cut(sequence, self._random.randint(before, len(sequence.tokens)))

    def _rollback(self) -> None:
        sequence = self._any()
        self._cut(sequence, self._random.randint(0, len(sequence.tokens)))

    def _fork(self) -> None:
        if len(self._sequences) < _SEQUENCES:
            of = self._any()
            self._sequences.append(_Sequence(of.table.fork(), list(of.tokens), list(of.rows)))

    def _remember(self) -> None:
        sequence = self._any()
        before = list(sequence.table.pages)
        remember(sequence.table, sequence.tokens)
        self.seen["pages merged"] += before != sequence.table.pages

    def _finish(self) -> None:
        sequence = self._sequences.pop(self._random.randrange(len(self._sequences)))
        if self._random.random() < 0.7:
            remember(sequence.table, sequence.tokens)
        sequence.table.release()

    def _write(self, sequence: _Sequence, tokens: Sequence[int]) -> bool:
        """What an engine does: room, the copy, and the rows; False where there is no room."""
        table, start = sequence.table, len(sequence.tokens)
        before = list(table.pages), self.pool.free
        known = self._known()
        try:
            copy = table.append(len(tokens))
        except RequestError:
            assert before == (table.pages, self.pool.free)
            self.seen["refusals"] += 1
            return False
        self.seen["pages forgotten"] += known - self._known()
        if copy is not None:
            self.seen["copies"] += 1
            self._memory[copy.target][: copy.rows] = self._memory[copy.source][: copy.rows]
        sequence.add(tokens)
        for row in range(start, len(sequence.tokens)):
            page = table.pages[row // PAGE_ROWS]
            assert self.pool.owners(page) == 1, "a page that others own is written"
            assert self.pool.key(page) is None, "a page that is known is written"
            self._memory[page][row % PAGE_ROWS] = sequence.rows[row]
        return True

    def _cut(self, sequence: _Sequence, length: int) -> None:
        sequence.table.rollback(length)
        del sequence.tokens[length:], sequence.rows[length:]

    def _check(self) -> None:
        owners = Counter(page for each in self._sequences for page in each.table.pages)
        assert self.pool.free + len(owners) == PAGES, "a page is lost, or both free and owned"
        assert all(self.pool.owners(page) == owners[page] for page in range(PAGES))
        for each in self._sequences:
            length = len(each.tokens)
            assert each.table.length == length
            assert len(each.table.pages) == -(-length // PAGE_ROWS)
            read = [row for page in each.table.pages for row in self._memory[page]]
            assert read[:length] == each.rows, "a sequence reads what is not its own"

    def _known(self) -> int:
        return sum(self.pool.key(page) is not None for page in range(PAGES))

    def _any(self) -> _Sequence:
        return self._random.choice(self._sequences)

    def _tokens(self, most: int) -> list[int]:
        return [self._random.choice((0, 0, 0, 1)) for _ in range(self._random.randint(1, most))]
