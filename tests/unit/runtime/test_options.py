"""What no model could do is refused before one is there, by the name of the option."""

from __future__ import annotations

from typing import Any

import pytest

from speccompile.runtime.errors import RequestError
from speccompile.runtime.options import Options

NAN = float("nan")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_new_tokens": -1}, "max_new_tokens is -1; it cannot be negative"),
        (
            {"min_new_tokens": 9, "max_new_tokens": 8},
            "min_new_tokens is 9; it must be from 0 to 8, which is max_new_tokens",
        ),
        ({"min_new_tokens": -1}, "min_new_tokens is -1; it must be from 0 to 256"),
        ({"temperature": NAN}, "temperature is nan; it must be from 0 to 100"),
        ({"top_k": -1}, "top_k is -1"),
        ({"top_p": 0.0}, "top_p is 0.0; it must be above 0 and at most 1"),
        ({"min_p": 1.5}, "min_p is 1.5; it must be from 0 to 1"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": 1 << 64}, "seed is 18446744073709551616"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0; it must be from 0.01 to 100"),
        ({"presence_penalty": 2.5}, "presence_penalty is 2.5; it must be from -2 to 2"),
        ({"frequency_penalty": NAN}, "frequency_penalty is nan; it must be from -2 to 2"),
        ({"logprobs": 21}, "logprobs is 21; it must be from 0 to 20"),
        ({"draft_length": -1}, "draft_length is -1; it cannot be negative"),
        ({"n": 0}, "n is 0; it must be from 1 to 128"),
        ({"n": 129}, "n is 129; it must be from 1 to 128"),
        ({"stop": ["a", ""]}, "stop has an empty text; leave it out"),
        ({"bad_words": [""]}, "bad_words has an empty text; leave it out"),
        (
            {"json_schema": "{}", "grammar": "start: a"},
            "json_schema and grammar exclude each other; give one of them",
        ),
    ],
)
def test_what_cannot_be_is_refused_by_its_name(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        Options(**given)
    assert str(caught.value).startswith(message)


def test_the_least_and_the_most_are_taken() -> None:
    Options(max_new_tokens=0, n=128, logprobs=0, min_p=1.0, seed=(1 << 64) - 1, draft_length=0)
    Options(max_new_tokens=8, min_new_tokens=8, logprobs=20, top_p=1e-9, presence_penalty=-2.0)


def test_a_request_has_the_numbers_of_the_options() -> None:
    options = Options(12, 3, 0.5, 4, 0.6, 0.7, 8, audited=True, logprobs=2, draft_length=9)
    request = options.request()
    assert (request.max_new_tokens, request.logprobs, request.draft_length) == (12, 2, 9)
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.5, 4, 0.6)
    assert (sampling.min_p, sampling.seed, sampling.audited) == (0.7, 8, True)


def test_a_seed_of_the_options_comes_before_another() -> None:
    assert Options(seed=0).request(5).sampling.seed == 0
    assert Options().request(5).sampling.seed == 5
