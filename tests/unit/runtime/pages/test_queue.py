"""The queue does what a list does."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speccompile.runtime.pages.queue import PageQueue

PAGES = 6


@given(st.lists(st.tuples(st.sampled_from(["first", "last", "take", "remove"]), st.integers(0, 5))))
def test_it_is_a_deque(steps: list[tuple[str, int]]) -> None:
    queue = PageQueue(PAGES)
    pages: deque[int] = deque()
    for step, page in steps:
        if step == "take" and pages:
            assert queue.take_first() == pages.popleft()
        elif step == "remove" and page in pages:
            queue.remove(page)
            pages.remove(page)
        elif step == "first" and page not in pages:
            queue.add_first(page)
            pages.appendleft(page)
        elif step == "last" and page not in pages:
            queue.add_last(page)
            pages.append(page)
        assert len(queue) == len(pages)
    assert [queue.take_first() for _ in range(len(queue))] == list(pages)
    with pytest.raises(IndexError):
        queue.take_first()
