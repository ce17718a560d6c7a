"""Which tokens a smaller vocabulary has: what it needs, what a text has, and then the first."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from speccompile.compiler.draft_vocabulary import choose_tokens, count_tokens
from speccompile.runtime.errors import SpeccompileError

TEXT = "the cat sat on the mat, and the dog sat on the cat\n" * 3 + "a zebra yawns\n"
VOCAB_SIZE = 320


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """Byte-level, of 256 bytes, then merges, then two special tokens and one that is not."""
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=312, initial_alphabet=alphabet, show_progress=False)
    corpus = [
        f"{word} {word}" for word in ["then", "other", "zebras", "yawning", "cats", "mats", "dogs"]
    ]
    made.train_from_iterator([*corpus * 4, TEXT], trainer)
    made.add_special_tokens(["<|end|>", "<|user|>"])
    made.add_tokens([AddedToken("<think>", special=False)])
    return made


def chosen(
    tokenizer: Tokenizer, text: str, size: int, vocab_size: int = VOCAB_SIZE, *, ends: list[int]
) -> NDArray[np.int32]:
    counts = count_tokens(tokenizer, text, vocab_size)
    return choose_tokens(tokenizer, counts, size, vocab_size=vocab_size, ends=ends)


def test_the_frequent_come_after_the_needed_and_before_the_first(tokenizer: Tokenizer) -> None:
    ids = choose_tokens(
        tokenizer, count_tokens(tokenizer, TEXT, VOCAB_SIZE), 270, vocab_size=VOCAB_SIZE, ends=[300]
    )
    assert ids.dtype == np.int32
    assert ids.size == 270
    assert (np.diff(ids) > 0).all()
    kept = set(ids.tolist())
    special = {tokenizer.token_to_id("<|end|>"), tokenizer.token_to_id("<|user|>")}
    assert {*range(256), *special, 300} <= kept
    assert tokenizer.token_to_id("<think>") not in kept
    counts = Counter(token for token in tokenizer.encode(TEXT).ids if token > 255)
    frequent = sorted(counts, key=lambda token: (-counts[token], token))
    left = 270 - 256 - len(special) - (300 not in frequent[:11])
    assert set(frequent[:left]) <= kept
    # Not by id: the first ids behind the bytes would be others.
    assert kept != {*range(267), *special, 300}


def test_what_is_left_is_filled_by_id(tokenizer: Tokenizer) -> None:
    ids = choose_tokens(
        tokenizer, count_tokens(tokenizer, "", VOCAB_SIZE), 262, vocab_size=VOCAB_SIZE, ends=[]
    )
    assert ids.tolist()[:260] == [*range(260)]
    assert [tokenizer.id_to_token(token) for token in ids[260:]] == ["<|end|>", "<|user|>"]


def test_the_choice_is_the_same_every_time(tokenizer: Tokenizer) -> None:
    again = Tokenizer.from_str(tokenizer.to_str())
    first, second = (
        choose_tokens(
            each, count_tokens(each, TEXT, VOCAB_SIZE), 275, vocab_size=VOCAB_SIZE, ends=[2]
        )
        for each in (tokenizer, again)
    )
    assert first.tolist() == second.tolist()


def test_bytes_of_a_sentencepiece_tokenizer_are_kept() -> None:
    pieces = {f"<0x{byte:02X}>": 1000 + byte for byte in range(256)}
    words = {f"w{number}": number for number in range(1000)}
    made = Tokenizer(models.BPE(words | pieces, [], byte_fallback=True))
    ids = chosen(made, "", 300, 1256, ends=[7])
    assert ids.tolist() == [*range(44), *range(1000, 1256)]


def test_tokens_of_the_padding_are_not_chosen(tokenizer: Tokenizer) -> None:
    ids = choose_tokens(
        tokenizer, count_tokens(tokenizer, TEXT, 290), 265, vocab_size=290, ends=[289, 310]
    )
    assert ids.max() == 289


@pytest.mark.parametrize("size", [320, 321])
def test_as_many_as_there_are_is_refused(tokenizer: Tokenizer, size: int) -> None:
    with pytest.raises(SpeccompileError, match=rf"is {size}, but .* only 320 tokens; leave it out"):
        choose_tokens(
            tokenizer,
            count_tokens(tokenizer, TEXT, VOCAB_SIZE),
            size,
            vocab_size=VOCAB_SIZE,
            ends=[],
        )


def test_too_few_for_the_needed_are_refused(tokenizer: Tokenizer) -> None:
    with pytest.raises(SpeccompileError, match=r"is 257, but 258 special tokens and bytes"):
        choose_tokens(
            tokenizer,
            count_tokens(tokenizer, TEXT, VOCAB_SIZE),
            257,
            vocab_size=VOCAB_SIZE,
            ends=[0],
        )
