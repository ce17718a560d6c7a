"""Bad words never appear, and nothing else is forbidden."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import NoBadWordsLogitsProcessor

from speccompile.runtime.errors import RequestError
from speccompile.runtime.processors.words import BadWords

VOCABULARY = 4
_TOKENS = st.integers(0, VOCABULARY - 1)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    st.lists(st.lists(_TOKENS, min_size=1, max_size=4), min_size=1, max_size=4),
    st.lists(_TOKENS, min_size=1, max_size=6),
)
def test_it_forbids_what_hugging_face_does(words: list[list[int]], tokens: list[int]) -> None:
    row = np.zeros(VOCABULARY, np.float32)
    BadWords(words, VOCABULARY).apply(row, tokens)
    oracle = NoBadWordsLogitsProcessor([list(word) for word in words])
    expected = oracle(torch.LongTensor([tokens]), torch.zeros(1, VOCABULARY))
    assert row.tolist() == expected[0].tolist()


def test_no_word_appears_in_random_output() -> None:
    words, random = [[0, 1, 2], [3, 3], [2, 0]], np.random.default_rng(3)
    processor, tokens = BadWords(words, VOCABULARY), [3]
    for _ in range(300):
        row = random.normal(size=VOCABULARY).astype(np.float32)
        processor.apply(row, tokens)
        tokens.append(int(row.argmax()))
    text = "".join(map(str, tokens))
    assert not any("".join(map(str, word)) in text for word in words)
    assert set(tokens) == set(range(VOCABULARY))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([[1], []], "bad_words has an empty word; leave it out"),
        ([[1, 9]], "bad_words names token 9; tokens are from 0 to 3"),
    ],
)
def test_what_cannot_be_forbidden_is_refused(words: list[list[int]], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        BadWords(words, VOCABULARY)
    assert str(caught.value) == message
