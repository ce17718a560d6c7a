"""What a request brought, and when it is done."""

import pytest

from speccompile.runtime.errors import RequestError
from speccompile.runtime.generation import Block, Finish, Generation
from speccompile.runtime.logprobs import TokenLogprobs
from speccompile.runtime.request import Request

LOGPROBS = [TokenLogprobs(token, -1.0, []) for token in range(9)]


def test_blocks_are_added_up_to_the_end() -> None:
    generation = Generation([1, 2], Request(4), 64)
    assert list(generation.add(Block([3, 4, 5]))) == [3, 4, 5]
    assert not generation.done
    assert list(generation.add(Block([6, 7, 8]))) == [6]
    assert (generation.tokens, generation.done) == ([1, 2, 3, 4, 5, 6], True)
    assert generation.finish is Finish.LENGTH
    assert generation.statistics.new_tokens == 4


def test_a_stop_token_is_no_part_of_it() -> None:
    generation = Generation([1], Request(9, stop_tokens=frozenset({5})), 64)
    assert list(generation.add(Block([3, 5, 4], LOGPROBS[3:6]))) == [3]
    assert (generation.done, generation.finish) == (True, Finish.STOP)
    assert (generation.tokens, generation.logprobs) == ([1, 3], LOGPROBS[3:4])


def test_what_nobody_took_is_not_counted() -> None:
    generation = Generation([1], Request(9), 64)
    assert next(generation.add(Block([3, 4, 5]))) == 3
    assert (generation.tokens, generation.statistics.new_tokens) == ([1, 3], 1)


@pytest.mark.parametrize(("count", "context", "end"), [(0, 9, 3), (4, 9, 7), (9, 9, 9), (9, 3, 3)])
def test_the_context_bounds_it(count: int, context: int, end: int) -> None:
    generation = Generation([1, 2, 3], Request(count), context)
    assert (generation.end, generation.done) == (end, end == 3)


@pytest.mark.parametrize("prompt", [[], [0] * 10])
def test_a_prompt_has_to_fit(prompt: list[int]) -> None:
    with pytest.raises(RequestError, match=f"has {len(prompt)} tokens; it must have 1 to 9"):
        Generation(prompt, Request(), 9)
