from __future__ import annotations

from collections.abc import Callable

import pytest
from tokenizers import Tokenizer

from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.metadata import Metadata
from speccompile.compiler.sources.tokenizer import gguf_tokenizer

BuildMetadata = Callable[..., Metadata]


def rebuilt(metadata: Metadata) -> Tokenizer:
    return Tokenizer.from_str(gguf_tokenizer(metadata).tokenizer_json)


@pytest.mark.parametrize("pre", ["smollm", "gpt-2", "llama-bpe", "default"])
@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    return 12345 + x",
        "na\u00efve \u4f60\u597d \u0661\u0662\u00bd",
        "\U0001f389\U0001f469\u200d\U0001f469\u200d\U0001f467",
        "  he he\t\r\n\n the  ",
        "<|start|>he<tool><|end|>",
        "".join(map(chr, range(256))),
    ],
)
def test_text_survives(tokenizer_metadata: BuildMetadata, pre: str, text: str) -> None:
    tokenizer = rebuilt(tokenizer_metadata(pre=pre, add_bos_token=False))
    ids = tokenizer.encode(text).ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


@pytest.mark.parametrize(
    ("pre", "text", "pieces"),
    [
        ("smollm", "a 12 b!", ["a", "\u0120", "1", "2", "\u0120b", "!"]),
        ("gpt-2", "a 12 b's", ["a", "\u012012", "\u0120b", "'s"]),
        (
            "llama-bpe",
            "a 1234 (b'S\n\nx",
            ["a", "\u0120", "123", "4", "\u0120(", "b", "'S", "\u010a\u010a", "x"],
        ),
        ("default", "a 12345=b", ["a", "\u0120", "123", "45", "=", "b"]),
    ],
)
def test_text_is_split_by_the_named_rule(
    tokenizer_metadata: BuildMetadata, pre: str, text: str, pieces: list[str]
) -> None:
    splitting = rebuilt(tokenizer_metadata(pre=pre)).pre_tokenizer
    assert [piece for piece, _ in splitting.pre_tokenize_str(text)] == pieces


def test_merges_apply(tokenizer_metadata: BuildMetadata) -> None:
    assert rebuilt(tokenizer_metadata()).encode("he he").tokens == ["he", "\u0120he"]


def test_whole_tokens_need_no_merges_in_llama_bpe_only(tokenizer_metadata: BuildMetadata) -> None:
    unmerged = tokenizer_metadata(merges=[])
    assert rebuilt(unmerged).encode("he").tokens == ["h", "e"]
    unmerged = tokenizer_metadata(merges=[], pre="llama-bpe", add_bos_token=False)
    assert rebuilt(unmerged).encode("he").tokens == ["he"]


def test_control_tokens_are_special_and_user_defined_ones_are_not(
    tokenizer_metadata: BuildMetadata,
) -> None:
    tokenizer = rebuilt(tokenizer_metadata())
    assert tokenizer.encode("<|start|>").ids == [1]
    assert tokenizer.encode("<tool>").ids == [260]
    assert tokenizer.decode([1, 260]) == "<tool>"


@pytest.mark.parametrize(
    ("changes", "ids"),
    [
        ({}, [258]),
        ({"add_bos_token": True}, [1, 258]),
        ({"pre": "llama-bpe"}, [1, 258]),
        ({"pre": "llama-bpe", "add_bos_token": False}, [258]),
    ],
)
def test_bos_is_added_where_the_file_says_so(
    tokenizer_metadata: BuildMetadata, changes: dict[str, object], ids: list[int]
) -> None:
    tokenizer = rebuilt(tokenizer_metadata(**changes))
    assert tokenizer.encode("he").ids == ids
    assert tokenizer.encode("he", add_special_tokens=False).ids == [258]


def test_special_ids_and_template(tokenizer_metadata: BuildMetadata) -> None:
    files = gguf_tokenizer(tokenizer_metadata(eot_token_id=260))
    assert (files.bos_token_id, files.bos_token) == (1, "<|start|>")
    assert (files.eos_token_ids, files.eos_token) == ((0, 260), "<|end|>")
    assert files.chat_template == "{{ messages }}"


def test_special_ids_may_be_absent(tokenizer_metadata: BuildMetadata) -> None:
    files = gguf_tokenizer(tokenizer_metadata(bos_token_id=None, eos_token_id=None))
    assert (files.bos_token_id, files.bos_token) == (None, None)
    assert (files.eos_token_ids, files.eos_token) == ((), None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "llama"}, r"model llama is not supported; supported: gpt2"),
        ({"pre": "qwen2"}, r"pre qwen2 is not supported; supported: gpt-2, smollm, llama-bpe"),
        ({"pre": None}, r"tokenizer\.ggml\.pre is missing"),
        ({"merges": ["h z\u00df"]}, r"'z\u00df' is no token"),
        ({"tokens": ["a", "a"], "merges": [], "bos_token_id": 0}, r"a token occurs twice"),
        ({"token_type": [1]}, r"1 token types for 261 tokens"),
        ({"eos_token_id": 261}, r"token id 261 is outside the vocabulary of 261"),
        ({"tokens": [1]}, r"tokens must be of type str, not 1"),
    ],
)
def test_errors(
    tokenizer_metadata: BuildMetadata, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(SourceError, match=rf"^tiny\.gguf: .*{message}"):
        gguf_tokenizer(tokenizer_metadata(**changes))
