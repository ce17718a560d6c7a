"""Which pages a prompt takes over."""

from __future__ import annotations

import pytest

from speccompile.runtime.pages.pool import PagePool
from speccompile.runtime.pages.prefixes import recall, remember
from speccompile.runtime.pages.table import PageCopy, PageTable

TOKENS = list(range(100, 112))


def _written(pool: PagePool, tokens: list[int]) -> PageTable:
    table = PageTable(pool)
    table.append(len(tokens))
    remember(table, tokens)
    return table


@pytest.mark.parametrize(
    ("prompt", "pages"),
    [
        (TOKENS, 3),
        (TOKENS[:11], 2),
        (TOKENS[:3], 0),
        ([*TOKENS[:4], *TOKENS[8:]], 1),
        (TOKENS[4:], 0),
        ([], 0),
    ],
)
def test_the_longest_known_beginning_in_full_pages(prompt: list[int], pages: int) -> None:
    pool = PagePool(8, 4)
    table = _written(pool, TOKENS)
    assert recall(pool, prompt).pages == table.pages[:pages]


def test_pages_of_an_ended_sequence_stay_until_they_are_needed() -> None:
    pool = PagePool(4, 4)
    _written(pool, TOKENS).release()
    assert pool.free == 4
    table = recall(pool, TOKENS)
    assert (table.length, pool.free) == (12, 1)
    table.release()
    pool.take(2)  # the one that was never used, and the last of the sequence
    assert recall(pool, TOKENS).length == 8


def test_a_page_that_is_known_already_is_used_once() -> None:
    pool = PagePool(8, 4)
    first, second = _written(pool, TOKENS), _written(pool, TOKENS)
    assert first.pages == second.pages
    assert pool.free == 5


def test_a_known_page_that_is_rolled_back_into_is_no_longer_known() -> None:
    pool = PagePool(8, 4)
    table = _written(pool, TOKENS)
    table.rollback(10)
    assert table.append(2) is None
    assert recall(pool, TOKENS).length == 8
    remember(table, [*TOKENS[:10], 1, 2])
    assert recall(pool, [*TOKENS[:10], 1, 2]).pages == table.pages


def test_a_known_page_that_another_uses_is_copied_and_stays_known() -> None:
    pool = PagePool(8, 4)
    table = _written(pool, TOKENS)
    other = recall(pool, TOKENS)
    other.rollback(10)
    assert other.append(1) == PageCopy(table.pages[2], other.pages[2], 2)
    assert recall(pool, TOKENS).pages == table.pages


def test_tokens_that_have_no_row_yet_are_refused() -> None:
    table = PageTable(PagePool(8, 4))
    table.append(4)
    with pytest.raises(ValueError, match="12 tokens do not fit the 4 rows"):
        remember(table, TOKENS)
