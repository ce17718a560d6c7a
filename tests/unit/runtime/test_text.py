"""Text arrives in whole characters, and nothing of a stop string or past it is shown."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from speccompile.runtime.text import TextStream


def _byte_tokenizer() -> Tokenizer:
    """One token a byte: every character beyond ASCII is split."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({text: index for index, text in enumerate(alphabet)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


TOKENIZER = _byte_tokenizer()


def _pieces(text: str, stop: Sequence[str] = ()) -> tuple[list[str], TextStream]:
    stream = TextStream(TOKENIZER, stop)
    pieces: list[str] = []
    for token in TOKENIZER.encode(text).ids:
        pieces.append(stream.push(token))
        if stream.stopped:
            return pieces, stream
    return [*pieces, stream.finish()], stream


def test_a_character_is_never_split() -> None:
    pieces, _ = _pieces("naïve 日本 🙂!")
    assert "".join(pieces) == "naïve 日本 🙂!"
    assert not any("\ufffd" in piece for piece in pieces)


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("one two three", ("two",), "one "),
        ("one two three", ("three", "two"), "one "),
        ("aab", ("ab",), "a"),
        ("stop", ("stop",), ""),
        ("almost sto", ("stop",), "almost sto"),
        ("no such thing", ("", "zzz"), "no such thing"),
    ],
)
def test_text_is_cut_at_the_first_stop_string(
    text: str, stop: tuple[str, ...], expected: str
) -> None:
    pieces, stream = _pieces(text, stop)
    assert "".join(pieces) == expected
    assert stream.stopped == (expected != text)


def test_text_that_may_begin_a_stop_string_waits() -> None:
    stream = TextStream(TOKENIZER, ["END"])
    shown = [stream.push(token) for token in TOKENIZER.encode("xENEND").ids]
    assert shown == ["x", "", "", "EN", "", ""]
    assert stream.stopped


@settings(max_examples=200, derandomize=True, deadline=None)
@given(
    st.text(alphabet="ab é", max_size=12),
    st.lists(st.text(alphabet="ab é", min_size=1, max_size=3), max_size=2),
)
def test_streaming_equals_searching_the_whole_text(text: str, stop: list[str]) -> None:
    pieces, stream = _pieces(text, stop)
    ends = [text[: at + len(word)] for word in stop if (at := text.find(word)) >= 0]
    if not ends:
        assert "".join(pieces) == text
        assert not stream.stopped
        return
    # The stream sees one character after another: the stop string that is complete first wins.
    seen = min(ends, key=len)
    cut = min(at for word in stop if (at := seen.find(word)) >= 0)
    assert "".join(pieces) == text[:cut]
    assert stream.stopped


def test_the_space_that_a_first_word_brings_is_kept() -> None:
    words = ["<unk>", "\u2581The", "\u2581capital", "\u2581is", "s"]
    model = models.BPE({word: index for index, word in enumerate(words)}, [], unk_token="<unk>")
    tokenizer = Tokenizer(model)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    prompt, generated = [1, 2] * 9, [3, 4]
    stream = TextStream(tokenizer, after=prompt)
    text = "".join([*(stream.push(token) for token in generated), stream.finish()])
    assert text == " iss"
    assert tokenizer.decode(prompt) + text == tokenizer.decode([*prompt, *generated])
