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


def _chunk_tokenizer() -> Tokenizer:
    """Bytes, and chunks of text that begin and end within characters."""
    byte_of = TOKENIZER.get_vocab()
    chunks = [_spelled(_CHUNKED[at : at + size]) for size in (2, 3, 5) for at in range(24)]
    words = [*sorted(byte_of, key=byte_of.__getitem__), *dict.fromkeys(chunks)]
    tokenizer = Tokenizer(models.BPE({word: index for index, word in enumerate(words)}, []))
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<special>"])
    return tokenizer


def _spelled(data: bytes) -> str:
    """Bytes as byte-level tokens are written; the byte tokenizer's ids are in another order."""
    return "".join(_LETTERS[byte] for byte in data)


def _letters() -> list[str]:
    """The letter that stands for each byte: printable ones for themselves, then from U+0100 on."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = (chr(0x100 + index) for index in range(256))
    return [chr(byte) if byte in printable else next(others) for byte in range(256)]


def _fallback_tokenizer() -> Tokenizer:
    """Words with their spaces, and bytes for characters it does not know."""
    words = ["<unk>", "<s>", "\u2581The", "\u2581", "s", "a", "\u00e9"]
    words += [f"<0x{byte:02X}>" for byte in range(256)]
    model = models.BPE(
        {word: index for index, word in enumerate(words)}, [], unk_token="<unk>", byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("\u2581", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.add_special_tokens(["<s>"])
    return tokenizer


_LETTERS = _letters()
_CHUNKED = "na\u00efve \u65e5\u672c \U0001f642\U0001f642 ab".encode()
TOKENIZER = _byte_tokenizer()
CHUNKS = _chunk_tokenizer()
FALLBACK = _fallback_tokenizer()


def _pieces(text: str, stop: Sequence[str] = ()) -> tuple[list[str], TextStream]:
    return _stream(TOKENIZER, TOKENIZER.encode(text).ids, stop)


def _stream(
    tokenizer: Tokenizer, tokens: Sequence[int], stop: Sequence[str] = (), after: Sequence[int] = ()
) -> tuple[list[str], TextStream]:
    stream = TextStream(tokenizer, stop, after)
    pieces: list[str] = []
    for token in tokens:
        pieces.append(stream.push(token))
        if stream.stopped:
            break
    return [*pieces, stream.finish()], stream


def _id(tokenizer: Tokenizer, token: str) -> int:
    return tokenizer.get_vocab()[token]


def _byte_tokens(data: bytes) -> list[int]:
    """The tokens of the fallback tokenizer for bytes."""
    return [_id(FALLBACK, f"<0x{byte:02X}>") for byte in data]


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


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.data())
def test_tokens_that_split_characters_give_the_text_of_all(data: st.DataObject) -> None:
    chunk = st.integers(256, CHUNKS.get_vocab_size() - 1)
    tokens = data.draw(st.lists(st.one_of(chunk, st.integers(0, 255)), max_size=12))
    pieces, stream = _stream(CHUNKS, tokens)
    text, whole = "".join(pieces), CHUNKS.decode(tokens)
    assert whole.startswith(text)
    assert not whole[len(text) :].strip("\ufffd"), "more than an unfinished end is missing"
    assert stream.kept == len(tokens)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(*[st.text(alphabet="\u00e9\u65e5\U0001f642a", max_size=8)] * 2)
def test_characters_of_bytes_arrive_whole_behind_any_others(prompt: str, text: str) -> None:
    output = _byte_tokens(text.encode())
    pieces, _ = _stream(FALLBACK, output, after=_byte_tokens(prompt.encode()))
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.lists(st.integers(0, 262), max_size=12), st.integers(0, 6))
def test_no_tokens_are_an_error(tokens: list[int], prompt: int) -> None:
    pieces, stream = _stream(FALLBACK, tokens, after=[*_byte_tokens(b"\xe2\x98"), *range(prompt)])
    assert len(pieces) == len(tokens) + 1
    assert stream.kept == len(tokens)


def test_bytes_that_are_no_character_do_not_spoil_what_follows_a_whole_one() -> None:
    # Decoded in one, the two characters' bytes would all be invalid for the one in excess.
    tokens = [*_byte_tokens("\u65e5".encode()), *_byte_tokens(b"\xe6"), _id(FALLBACK, "a")]
    pieces, _ = _stream(FALLBACK, tokens)
    assert pieces == ["", "", "\u65e5", "", "\ufffda", ""]


def test_endless_bytes_that_are_no_character_are_shown_with_little_delay() -> None:
    byte = _id(CHUNKS, _spelled(b"\x80"))
    stream = TextStream(CHUNKS)
    shown = "".join(stream.push(byte) for _ in range(50))
    assert shown == "\ufffd" * 47


def test_special_tokens_are_not_shown_and_take_no_space_away() -> None:
    special, space, word = (_id(FALLBACK, text) for text in ("<s>", "\u2581", "\u2581The"))
    tokens = [word, *[special] * 9, space, word, special]
    pieces, stream = _stream(FALLBACK, tokens)
    assert "".join(pieces) == FALLBACK.decode(tokens) == "The  The"
    assert stream.kept == len(tokens)


def test_an_unfinished_character_is_no_text() -> None:
    pieces, stream = _pieces("a\U0001f642")
    assert "".join(pieces) == "a\U0001f642"
    tokens = TOKENIZER.encode("a\U0001f642").ids[:-1]
    pieces, stream = _stream(TOKENIZER, tokens, stop=["\U0001f642"])
    assert "".join(pieces) == "a"
    assert not stream.stopped
    assert stream.kept == 4


@pytest.mark.parametrize("lead", ["", "x", "\U0001f642", "two words "], ids=ascii)
@pytest.mark.parametrize("stop", ["END", "\u65e5\u672c", " \U0001f642"], ids=ascii)
def test_a_stop_string_over_tokens_cuts_text_and_tokens_at_one_place(lead: str, stop: str) -> None:
    tokens = TOKENIZER.encode(f"{lead}{stop} and more").ids
    pieces, stream = _stream(TOKENIZER, tokens, [stop])
    assert "".join(pieces) == lead
    assert stream.stopped
    assert TOKENIZER.decode(tokens[: stream.kept]) == lead


def test_the_bytes_of_a_whole_character_before_the_cut_are_all_kept() -> None:
    tokens = [*_byte_tokens("\u65e5\u672c".encode()), _id(FALLBACK, "s")]
    for stop, kept in (("s", 6), ("\u672c", 3), ("\u65e5\u672c", 0)):
        pieces, stream = _stream(FALLBACK, tokens, [stop])
        assert "".join(pieces).encode() == "\u65e5\u672c".encode()[:kept]
        assert stream.kept == kept


@settings(max_examples=300, derandomize=True, deadline=None)
@given(st.data())
def test_tokens_before_the_cut_are_kept_and_no_others(data: st.DataObject) -> None:
    chunk = st.integers(256, CHUNKS.get_vocab_size() - 1)
    tokens = data.draw(st.lists(chunk, min_size=1, max_size=8))
    stop = data.draw(st.lists(st.text("ve \u65e5\U0001f642", min_size=1, max_size=2), max_size=2))
    stream, shown = TextStream(CHUNKS, stop), ""
    # Where the text of the first n tokens ends, in whole characters: one begun counts.
    ends = [len(CHUNKS.decode(tokens[: n + 1])) for n in range(len(tokens))]
    for n, token in enumerate(tokens, 1):
        shown += stream.push(token)
        assert stream.kept == sum(end <= len(shown) for end in ends[:n])
        if stream.stopped:
            return
    stream.finish()
    assert stream.kept == len(tokens)


def test_the_stop_string_that_is_complete_first_cuts_in_one_token_too() -> None:
    chunk = _id(CHUNKS, _spelled(b"na\xc3\xafv"))
    for stop in (["na\u00efv", "a"], ["a", "na\u00efv"], ["na", "a", "a\u00ef"]):
        pieces, _ = _stream(CHUNKS, [chunk], stop)
        assert "".join(pieces) == ("" if "na" in stop else "n")
