"""Ten thousand operations on one pool: nobody reads another's rows, and no page is lost."""

from __future__ import annotations

import tracemalloc
from collections.abc import Sequence

import pytest

from speccompile.runtime.pages import pool, prefixes, queue, table
from speccompile.runtime.pages.pool import PagePool
from speccompile.runtime.pages.table import PageCopy, PageTable
from tests.unit.runtime.pages.machine import PAGES, Machine

OPERATIONS = 10_000
WARM_UP = 2_000
KEY = 100  # bytes, with what Python keeps of it
EVENTS = {"copies", "pages forgotten", "pages merged", "pages recalled", "refusals"}


@pytest.mark.parametrize("seed", range(3))
def test_every_sequence_reads_its_own_rows(seed: int) -> None:
    machine = Machine(seed)
    machine.run(OPERATIONS)
    assert all(machine.seen[event] > 100 for event in EVENTS), machine.seen
    machine.finish()
    assert machine.pool.free == PAGES


def test_nothing_grows() -> None:
    assert _growth() <= KEY  # which pages are known at the end depends on the operations


def test_growth_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[PageTable] = []
    release = PageTable.release

    def keep(table: PageTable) -> None:
        release(table)
        kept.append(table)

    monkeypatch.setattr(PageTable, "release", keep)
    assert _growth() > 100 * KEY


def _growth() -> int:
    """Bytes of what the sources of pages have made, gained in 10,000 operations after others."""
    machine = Machine(0)
    machine.run(WARM_UP)
    tracemalloc.start()
    try:
        machine.run(WARM_UP)
        machine.finish()
        before = _size()
        machine.run(OPERATIONS)
        machine.finish()
        return _size() - before
    finally:
        tracemalloc.stop()


def _size() -> int:
    """Bytes held by what they have made since the trace began."""
    files = [
        tracemalloc.Filter(True, str(each.__file__)) for each in (pool, prefixes, queue, table)
    ]
    return sum(trace.size for trace in tracemalloc.take_snapshot().filter_traces(files).traces)


def test_appending_to_a_shared_page_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def append(table: PageTable, rows: int) -> PageCopy | None:
        missing = -(-(table.length + rows) // table.pool.page_rows) - len(table.pages)
        if table.pages:
            table.pool.forget(table.pages[-1])
        table.pages += table.pool.take(missing)
        table.length += rows
        return None

    monkeypatch.setattr(PageTable, "append", append)
    _fails("a page that others own is written")


def test_a_copy_that_is_not_asked_for_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    append = PageTable.append

    def silent(table: PageTable, rows: int) -> PageCopy | None:
        append(table, rows)
        return None

    monkeypatch.setattr(PageTable, "append", silent)
    _fails("a sequence reads what is not its own")


def test_a_rollback_that_frees_a_shared_page_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    release = PagePool.release

    def free(pool: PagePool, page: int) -> None:
        while pool.owners(page):
            release(pool, page)

    monkeypatch.setattr(PagePool, "release", free)
    _fails("a page is lost, or both free and owned")


def test_a_rollback_that_loses_pages_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def rollback(table: PageTable, length: int) -> None:
        del table.pages[-(-length // table.pool.page_rows) :]
        table.length = length

    monkeypatch.setattr(PageTable, "rollback", rollback)
    _fails("a page is lost, or both free and owned")


def test_a_known_page_that_is_written_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    take, forget = PagePool.take, PagePool.forget

    def keep(pool: PagePool, page: int) -> None:
        pass

    def only_when_taken(pool: PagePool, count: int) -> list[int]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(PagePool, "forget", forget)
            return take(pool, count)

    monkeypatch.setattr(PagePool, "take", only_when_taken)
    monkeypatch.setattr(PagePool, "forget", keep)
    _fails("a page that is known is written")


def test_a_key_without_the_tokens_before_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def key(previous: bytes, tokens: Sequence[int]) -> bytes:
        return bytes(tokens)

    monkeypatch.setattr(prefixes, "_key", key)
    _fails("a sequence reads what is not its own")


def _fails(message: str) -> None:
    with pytest.raises(AssertionError, match=message):
        Machine(0).run(OPERATIONS)
