from __future__ import annotations

from pathlib import Path

import gguf
import pytest
from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import ByteLevel

from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.gguf_file import read_gguf
from speccompile.compiler.sources.gguf_tokenizer import gguf_tokenizer
from speccompile.compiler.sources.metadata import Metadata

TOKENS = ["<|end|>", "<|start|>", *sorted(ByteLevel.alphabet()), "he", "\u0120he", "<tool>"]
KEYS: dict[str, object] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3, 3, *[1] * 258, 4],
    "tokenizer.ggml.merges": ["h e", "\u0120 he"],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 0,
    "tokenizer.chat_template": "{{ messages }}",
}


def tokenizer_metadata(**changes: object) -> Metadata:
    """Metadata with the given keys (after ``tokenizer.ggml.``) replaced."""
    changed = {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    return Metadata("tiny.gguf", KEYS | changed)


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
def test_text_survives(pre: str, text: str) -> None:
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
def test_text_is_split_by_the_named_rule(pre: str, text: str, pieces: list[str]) -> None:
    splitting = rebuilt(tokenizer_metadata(pre=pre)).pre_tokenizer
    assert [piece for piece, _ in splitting.pre_tokenize_str(text)] == pieces


def test_merges_apply() -> None:
    assert rebuilt(tokenizer_metadata()).encode("he he").tokens == ["he", "\u0120he"]


def test_whole_tokens_need_no_merges_in_llama_bpe_only() -> None:
    unmerged = tokenizer_metadata(merges=[])
    assert rebuilt(unmerged).encode("he").tokens == ["h", "e"]
    unmerged = tokenizer_metadata(merges=[], pre="llama-bpe", add_bos_token=False)
    assert rebuilt(unmerged).encode("he").tokens == ["he"]


def test_control_tokens_are_special_and_user_defined_ones_are_not() -> None:
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
        ({"pre": "llama-bpe", "bos_token_id": None}, [258]),
        ({"add_eos_token": True}, [258, 0]),
        ({"add_bos_token": True, "add_eos_token": True, "eos_token_id": 1}, [1, 258, 1]),
    ],
)
def test_bos_and_eos_are_added_where_the_file_says_so(
    changes: dict[str, object], ids: list[int]
) -> None:
    tokenizer = rebuilt(tokenizer_metadata(**changes))
    assert tokenizer.encode("he").ids == ids
    assert tokenizer.encode("he", add_special_tokens=False).ids == [258]


def test_special_ids_and_template() -> None:
    files = gguf_tokenizer(tokenizer_metadata(eot_token_id=260))
    assert (files.bos_token_id, files.bos_token) == (1, "<|start|>")
    assert (files.eos_token_ids, files.eos_token) == ((0, 260), "<|end|>")
    assert files.chat_template == "{{ messages }}"


def test_known_ends_are_found_by_their_text() -> None:
    """Marked as text here: files do that, and it would be shown and generated past."""
    renamed = {"he": "<end_of_turn>", "\u0120he": "<|eot_id|>"}
    tokens = [renamed.get(token, token) for token in TOKENS]
    metadata = tokenizer_metadata(tokens=tokens, merges=[], eom_token_id=5)
    assert gguf_tokenizer(metadata).eos_token_ids == (0, 5, 258, 259)
    tokenizer = rebuilt(metadata)
    assert tokenizer.encode("h<end_of_turn><|eot_id|>").ids[1:] == [258, 259]
    assert tokenizer.decode([258, 259]) == ""


def test_unused_and_unknown_tokens() -> None:
    """Tokens that are there but unused keep their ids and are never found in text."""
    types = [3, 3, *[1] * 256, 2, 5, 5]
    tokenizer = rebuilt(tokenizer_metadata(token_type=types, merges=[]))
    assert tokenizer.get_vocab_size() == 261
    assert tokenizer.token_to_id("<tool>") == 260
    assert 260 not in tokenizer.encode("<tool>").ids
    assert tokenizer.encode("<he>").ids[1] == 258


def test_tokens_that_only_pad_the_embedding_are_left_out() -> None:
    padding = [f"[PAD{len(TOKENS) + number}]" for number in range(3)]
    tokens, types = [*TOKENS, *padding], [3, 3, *[1] * 258, 4, 5, 5, 5]
    tokenizer = rebuilt(tokenizer_metadata(tokens=tokens, token_type=types))
    assert tokenizer.get_vocab() == rebuilt(tokenizer_metadata()).get_vocab()
    types[-1] = 1  # a token of that name that is used, and then so are those before it
    assert rebuilt(tokenizer_metadata(tokens=tokens, token_type=types)).get_vocab_size() == 264


def test_the_default_of_several_chat_templates(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "x.gguf", "llama")
    for key, value in KEYS.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif key != "tokenizer.chat_template":
            writer.add_string(key, str(value))
    writer.add_chat_template(
        [{"name": "tool_use", "template": "tools"}, {"name": "default", "template": "plain"}]
    )
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert gguf_tokenizer(read_gguf(tmp_path / "x.gguf").metadata).chat_template == "plain"


def test_special_ids_may_be_absent() -> None:
    tokens = ["<|stop|>", *TOKENS[1:]]
    metadata = tokenizer_metadata(tokens=tokens, bos_token_id=None, eos_token_id=None)
    files = gguf_tokenizer(metadata)
    assert (files.bos_token_id, files.bos_token) == (None, None)
    assert (files.eos_token_ids, files.eos_token) == ((), None)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "t5"}, r"model t5 is not supported; supported: gpt2 .*, llama"),
        ({"pre": "qwen"}, r"pre qwen is not supported; supported: gpt-2, smollm, refact, llama"),
        ({"pre": None}, r"tokenizer\.ggml\.pre is missing"),
        ({"merges": ["h z\u00df"]}, r"'h' and 'z\u00df' do not merge into a token"),
        ({"tokens": ["a", "a"], "merges": [], "bos_token_id": 0}, r"token 'a' occurs twice"),
        ({"token_type": [1]}, r"1 token types for 261 tokens"),
        ({"token_type": [9] * 261}, r"token type 9 is unknown"),
        ({"eos_token_id": 261}, r"eos token id 261 is outside the vocabulary of 261"),
        ({"tokens": [1]}, r"tokens must be of type str, not 1"),
    ],
)
def test_errors(changes: dict[str, object], message: str) -> None:
    with pytest.raises(SourceError, match=rf"^tiny\.gguf: .*{message}"):
        gguf_tokenizer(tokenizer_metadata(**changes))
