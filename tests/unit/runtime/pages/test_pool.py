"""The pool alone: the order in which pages are taken, and what it refuses."""

from __future__ import annotations

import pytest

from speccompile.runtime.errors import RequestError
from speccompile.runtime.pages.pool import PagePool


def test_too_few_pages_are_named_and_none_is_taken() -> None:
    pool = PagePool(4, 32)
    pool.take(3)
    message = "needs 2 more pages of 32 rows and 1 of 4 are free; end another sequence, or open"
    with pytest.raises(RequestError, match=message):
        pool.take(2)
    assert pool.free == 1
    assert pool.take(1) == [3]


def test_a_page_is_free_when_its_last_owner_leaves() -> None:
    pool = PagePool(2, 4)
    (page,) = pool.take(1)
    pool.share(page)
    pool.release(page)
    assert (pool.owners(page), pool.free) == (1, 1)
    pool.release(page)
    assert (pool.owners(page), pool.free) == (0, 2)
    with pytest.raises(ValueError, match=f"page {page} has no owner"):
        pool.release(page)


def test_unknown_pages_are_taken_before_known_ones_and_those_by_age() -> None:
    pool = PagePool(4, 4)
    old, unknown, new, _ = pool.take(4)
    for page in (old, new):
        pool.learn(page, b"%d" % page)
    for page in (old, unknown, new):
        pool.release(page)
    assert pool.take(3) == [unknown, old, new]


def test_use_makes_a_known_page_young_again() -> None:
    pool = PagePool(2, 4)
    first, second = pool.take(2)
    for page in (first, second):
        pool.learn(page, b"%d" % page)
        pool.release(page)
    pool.share(first)
    assert pool.take(1) == [second]
    assert pool.find(b"%d" % second) is None
    assert pool.find(b"%d" % first) == first


def test_the_first_page_of_a_key_is_the_known_one() -> None:
    pool = PagePool(2, 4)
    first, second = pool.take(2)
    assert pool.learn(first, b"key") == first
    assert pool.learn(second, b"key") == first
    pool.forget(second)
    assert pool.find(b"key") == first
    pool.forget(first)
    assert pool.find(b"key") is None


@pytest.mark.parametrize(("pages", "rows"), [(0, 4), (4, 0)])
def test_a_pool_of_nothing_is_refused(pages: int, rows: int) -> None:
    with pytest.raises(ValueError, match=f"{pages} pages of {rows} rows"):
        PagePool(pages, rows)
