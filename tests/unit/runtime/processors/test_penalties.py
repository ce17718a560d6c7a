"""Penalties are those of their models, at every node of a tree as in plain decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from transformers import RepetitionPenaltyLogitsProcessor

from speccompile.runtime.errors import RequestError
from speccompile.runtime.processors.penalties import OutputPenalty, RepetitionPenalty
from speccompile.runtime.processors.processor import Processor

VOCABULARY = 8
PROMPT = [1, 2, 1]

Row = NDArray[np.float32]


def _row(tokens: Sequence[int]) -> Row:
    """The logits [V] of a model that looks at the last two tokens."""
    seed = [len(tokens), *tokens[-2:]]
    return np.random.default_rng(seed).normal(size=VOCABULARY).astype(np.float32)


def _processors() -> tuple[Processor, ...]:
    return (
        RepetitionPenalty(1.5),
        OutputPenalty(len(PROMPT), presence=0.4, frequency=0.3),
    )


def _applied(processors: Sequence[Processor], row: Row, tokens: Sequence[int]) -> Row:
    row = row.copy()
    for processor in processors:
        processor.apply(row, tokens)
    return row


def test_repetition_is_hugging_faces() -> None:
    tokens = [3, 5, 3, 0]
    oracle = RepetitionPenaltyLogitsProcessor(1.3)
    expected = oracle(torch.LongTensor([tokens]), torch.from_numpy(_row(tokens))[None].clone())
    found = _applied([RepetitionPenalty(1.3)], _row(tokens), tokens)
    np.testing.assert_array_equal(found, expected[0].numpy())
    assert (found != _row(tokens)).sum() == 3


def test_presence_counts_once_and_frequency_every_time_and_the_prompt_never() -> None:
    row, tokens = np.zeros(VOCABULARY, np.float32), [*PROMPT, 4, 2, 4]
    OutputPenalty(len(PROMPT), presence=0.5, frequency=0.25).apply(row, tokens)
    assert row.tolist() == [0.0, 0.0, -0.75, 0.0, -1.0, 0.0, 0.0, 0.0]


def test_negative_penalties_encourage() -> None:
    row = np.zeros(VOCABULARY, np.float32)
    OutputPenalty(0, presence=-2.0).apply(row, [1])
    assert row.argmax() == 1


def test_a_forbidden_token_stays_forbidden() -> None:
    row = np.full(VOCABULARY, -np.inf, np.float32)
    assert np.isneginf(_applied(_processors(), row, [*PROMPT, 1, 2])).all()


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.lists(st.lists(st.integers(0, 2), max_size=9), min_size=1, max_size=8))
def test_what_was_asked_before_does_not_matter(sequences: list[list[int]]) -> None:
    processors = _processors()
    for tokens in sequences:
        found = _applied(processors, _row(tokens), tokens)
        np.testing.assert_array_equal(found, _applied(_processors(), _row(tokens), tokens))


def test_a_tree_walked_with_penalties_is_plain_decoding() -> None:
    plain = _plain(40)
    processors = _processors()
    assert _speculative(40, lambda row, path, _: _applied(processors, row, path)) == plain


def test_penalties_of_the_root_alone_would_show() -> None:
    processors = _processors()
    stale = _speculative(40, lambda row, _, root: _applied(processors, row, root))
    assert stale != _plain(40)


def _plain(count: int) -> list[int]:
    tokens = list(PROMPT)
    for _ in range(count):
        tokens.append(int(_applied(_processors(), _row(tokens), tokens).argmax()))
    return tokens


def _speculative(count: int, processed: Callable[[Row, list[int], list[int]], Row]) -> list[int]:
    """Greedy decoding by trees of all two-token continuations, whose rows come in random order."""
    tokens, order = list(PROMPT), np.random.default_rng(5)
    while len(tokens) < len(PROMPT) + count:
        paths = [(), *((a,) for a in range(VOCABULARY))]
        paths += [(a, b) for a in range(VOCABULARY) for b in range(VOCABULARY)]
        chosen: dict[tuple[int, ...], int] = {}
        for index in order.permutation(len(paths)):
            path = [*tokens, *paths[index]]
            chosen[paths[index]] = int(processed(_row(path), path, tokens).argmax())
        accepted: tuple[int, ...] = ()
        while accepted in chosen:
            accepted += (chosen[accepted],)
        tokens += accepted
    return tokens[: len(PROMPT) + count]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: RepetitionPenalty(0.0),
            "repetition_penalty is 0.0; it must be from 0.01 to 100",
        ),
        (
            lambda: RepetitionPenalty(float("nan")),
            "repetition_penalty is nan; it must be from 0.01 to 100",
        ),
        (
            lambda: OutputPenalty(0, presence=2.5),
            "presence_penalty is 2.5; it must be from -2 to 2",
        ),
        (
            lambda: OutputPenalty(0, frequency=-3),
            "frequency_penalty is -3; it must be from -2 to 2",
        ),
    ],
)
def test_a_penalty_out_of_range_is_refused(make: Callable[[], Processor], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        make()
    assert str(caught.value) == message
