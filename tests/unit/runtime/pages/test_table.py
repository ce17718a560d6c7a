"""One sequence's pages, step by step; in company: `test_pages.py`."""

from __future__ import annotations

import pytest

from speccompile.runtime.errors import RequestError
from speccompile.runtime.pages.pool import PagePool
from speccompile.runtime.pages.table import PageCopy, PageTable


def test_pages_come_and_go_with_the_rows() -> None:
    pool = PagePool(4, 4)
    table = PageTable(pool)
    assert table.append(5) is None
    assert (len(table.pages), pool.free) == (2, 2)
    table.append(3)
    assert len(table.pages) == 2
    table.rollback(5)
    assert len(table.pages) == 2
    table.rollback(4)
    assert (len(table.pages), pool.free, table.length) == (1, 3, 4)
    table.release()
    assert (table.pages, pool.free, table.length) == ([], 4, 0)


def test_a_fork_copies_the_last_page_when_one_of_the_two_writes() -> None:
    pool = PagePool(8, 4)
    table = PageTable(pool)
    table.append(6)
    full, partly = table.pages
    fork = table.fork()
    assert fork.pages == table.pages
    copy = fork.append(3)
    assert copy == PageCopy(source=partly, target=fork.pages[1], rows=2)
    assert fork.pages[0] == full
    assert fork.pages[1] != partly
    assert table.append(1) is None  # it has the page for itself again
    assert table.pages == [full, partly]


def test_a_fork_at_the_end_of_a_page_copies_nothing() -> None:
    table = PageTable(PagePool(8, 4))
    table.append(4)
    fork = table.fork()
    assert fork.append(1) is None
    assert table.append(1) is None
    assert fork.pages[0] == table.pages[0]
    assert fork.pages[1] != table.pages[1]


def test_a_full_page_that_is_shared_is_copied_after_a_rollback_into_it() -> None:
    table = PageTable(PagePool(8, 4))
    table.append(8)
    fork = table.fork()
    fork.rollback(7)
    assert fork.append(1) == PageCopy(table.pages[1], fork.pages[1], 3)


def test_a_copy_needs_a_page_too() -> None:
    pool = PagePool(2, 4)
    table = PageTable(pool)
    table.append(7)
    fork = table.fork()
    with pytest.raises(RequestError, match="needs 1 more pages"):
        fork.append(1)
    assert (fork.length, fork.pages) == (7, table.pages)
    table.release()
    assert fork.append(1) is None


def test_what_is_no_length_is_refused() -> None:
    table = PageTable(PagePool(2, 4))
    with pytest.raises(RequestError, match="at least one row"):
        table.append(0)
    table.append(3)
    with pytest.raises(ValueError, match="from 3 to 4 rows"):
        table.rollback(4)
