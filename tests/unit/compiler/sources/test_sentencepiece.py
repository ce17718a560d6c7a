"""SentencePiece's BPE against transformers, with a vocabulary that is trained here."""

from __future__ import annotations

import json
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Regex, Tokenizer
from tokenizers.models import BPE
from tokenizers.normalizers import Replace
from tokenizers.pre_tokenizers import Split
from tokenizers.trainers import BpeTrainer
from transformers import LlamaTokenizer
from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer

from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.gguf_tokenizer import gguf_tokenizer
from speccompile.compiler.sources.metadata import Metadata
from tests.texts import TEXTS

CONTROL = ("<s>", "</s>", "<|assistant|>")
USER_DEFINED = ("\n\n", "<table>")
SPACE = "\u2581"
RUNS = tuple(" " * length for length in range(2, 8))
WITH_TOKENS = (
    "<s>Hi<|assistant|> there</s>",
    " <s>  <|assistant|>\n a<table>b <table>  c\n\nd\n\n",
    "<s ><0x41>\u2581 \u2581\u2581x<unk>y",
)
FAMILIES = {"llama": "phi3", "gemma2": "gemma2", "gemma3": "gemma3"}
"""By architecture, which of transformers' builders has its pipeline.

The one for phi3 is that of the tokenizer.json of Llama 2 and Mistral too, but for what Phi-3's
added tokens do to the white space after them, which it leaves out.
"""


@cache
def keys(architecture: str) -> dict[str, object]:
    """A file's keys. Gemma's has runs of spaces, in front, with the score of an added token."""
    tokenizer = Tokenizer(BPE())
    tokenizer.normalizer = Replace(" ", SPACE)
    tokenizer.pre_tokenizer = Split(Regex(f"{SPACE}*[^{SPACE}]+"), "isolated")
    trainer = BpeTrainer(vocab_size=500, min_frequency=2, show_progress=False)
    tokenizer.train_from_iterator(TEXTS * 2, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    merged = list(dict.fromkeys("".join(pair) for pair in model["merges"]))
    gemma = architecture.startswith("gemma")
    runs = RUNS if gemma else ()
    merged = [token for token in merged if token.strip(SPACE) or not gemma]
    # The other characters fall back to bytes.
    single = [token for token in model["vocab"] if token == SPACE or token < "\u0600"]
    single = [token for token in single if len(token) == 1]
    added = {
        **dict.fromkeys(("<unk>",), 2),
        **dict.fromkeys(CONTROL, 3),
        **dict.fromkeys((*USER_DEFINED, *runs), 4),
    }
    normal = [token for token in [*merged, *single] if token not in added]
    bytes_ = [f"<0x{byte:02X}>" for byte in range(256)]
    return {
        "general.architecture": architecture,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*added, *bytes_, *normal],
        "tokenizer.ggml.token_type": [*added.values(), *[6] * 256, *[1] * len(normal)],
        "tokenizer.ggml.scores": [
            *[-1000.0] * (len(added) + 256),
            *(-float(rank) for rank in range(len(normal))),
        ],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_space_prefix": not gemma,
    }


def rebuild(values: dict[str, object]) -> Tokenizer:
    return Tokenizer.from_str(gguf_tokenizer(Metadata("x.gguf", values)).tokenizer_json)


@cache
def rebuilt(architecture: str) -> Tokenizer:
    return rebuild(keys(architecture))


@cache
def reference(architecture: str) -> Tokenizer:
    names = {"tokenizer_type": "model", "tokens": "tokens", "scores": "scores"}
    names["token_type"] = "token_type"
    values = keys(architecture)
    contents = {ours: values[f"tokenizer.ggml.{theirs}"] for ours, theirs in names.items()}
    tokenizer, _ = convert_gguf_tokenizer(FAMILIES[architecture], contents)
    tokenizer.add_special_tokens(["<unk>"])
    return tokenizer


@pytest.mark.parametrize("architecture", FAMILIES)
@pytest.mark.parametrize("text", [*TEXTS, *WITH_TOKENS, "\n".join(TEXTS), " " * 50 + "x"])
def test_tokens_are_the_family_s(architecture: str, text: str) -> None:
    assert_same(architecture, text)


@pytest.mark.parametrize("architecture", ["llama", "gemma2"])
@settings(max_examples=100, deadline=None)
@given(text=st.text() | st.text("theaB1 \n\u2581\u4f60\U0001f389<s>'", max_size=30))
def test_tokens_of_any_text_are_the_family_s(architecture: str, text: str) -> None:
    assert_same(architecture, text)


def assert_same(architecture: str, text: str) -> None:
    ours, theirs = rebuilt(architecture), reference(architecture)
    ids = ours.encode(text, add_special_tokens=False).ids
    assert ids == theirs.encode(text, add_special_tokens=False).ids
    for skipped in (False, True):
        decoded = ours.decode(ids, skip_special_tokens=skipped)
        assert decoded == theirs.decode(ids, skip_special_tokens=skipped)


@pytest.mark.parametrize("text", [text for text in TEXTS if not text.startswith(" ")])
def test_llama_s_own_class_agrees(text: str) -> None:
    """It adds no space to text that begins with one, as SentencePiece does; elsewhere it agrees."""
    tokens = keys("llama")["tokenizer.ggml.tokens"]
    assert isinstance(tokens, list)
    merges = json.loads(rebuilt("llama").to_str())["model"]["merges"]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    theirs = LlamaTokenizer(vocab=vocabulary, merges=[(left, right) for left, right in merges])
    theirs.add_tokens(list(USER_DEFINED))
    if "\n\n" not in text:
        assert rebuilt("llama").encode(text).ids == [1, *theirs.encode(text)]


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("", []),
        (" ", [2 * SPACE]),
        ("\u4f60", [SPACE, "<0xE4>", "<0xBD>", "<0xA0>"]),
        ("the", [f"{SPACE}the"]),
        (" the", [2 * SPACE, "the"]),
        ("the<s>the", [f"{SPACE}the", "<s>", f"{SPACE}the"]),
    ],
)
def test_bytes_and_prefix(text: str, tokens: list[str]) -> None:
    assert rebuilt("llama").encode(text, add_special_tokens=False).tokens == tokens


def test_other_scores_give_other_tokens() -> None:
    scores = keys("llama")["tokenizer.ggml.scores"]
    assert isinstance(scores, list)
    turned = rebuild({**keys("llama"), "tokenizer.ggml.scores": scores[::-1]})
    text = "\n".join(TEXTS)
    assert turned.encode(text).ids != rebuilt("llama").encode(text).ids


def test_gemma_s_runs_of_spaces_come_before_words() -> None:
    tokens = rebuilt("gemma2").encode("a     the", add_special_tokens=False).tokens
    assert tokens[1] == SPACE * 5
    as_llama = rebuild({**keys("gemma2"), "general.architecture": "llama"})
    assert as_llama.encode("a     the", add_special_tokens=False).tokens != tokens


def test_stated_merges_are_used() -> None:
    merges = json.loads(rebuilt("llama").to_str())["model"]["merges"]
    written = [" ".join(pair) for pair in merges]
    values = {**keys("llama"), "tokenizer.ggml.merges": written, "tokenizer.ggml.scores": None}
    assert rebuild(values).to_str() == rebuilt("llama").to_str()
    assert rebuild({**values, "tokenizer.ggml.merges": []}).encode("the").tokens == [
        *("<s>", SPACE, "t", "h", "e")
    ]


def test_phi3_s_tokens_take_the_white_space_after_them() -> None:
    tokenizer = rebuild({**keys("llama"), "general.architecture": "phi3"})
    ids = tokenizer.encode("<|assistant|>\n the<s>  the", add_special_tokens=False).ids
    tokens = [tokenizer.id_to_token(token) for token in ids]
    assert tokens == ["<|assistant|>", f"{SPACE}the", "<s>", SPACE * 2, f"{SPACE}the"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"remove_extra_whitespaces": True}, "remove_extra_whitespaces is not supported"),
        ({"precompiled_charsmap": [1, 2]}, "precompiled_charsmap"),
        ({"scores": [0.0]}, "has 1 scores for"),
        ({"scores": None}, "scores is missing"),
        ({"merges": ["a zz"]}, "'a' and 'zz' do not merge into a token"),
        (
            {"tokens": ["  ", "\u2581\u2581"], "token_type": [4, 1], "eos_token_id": 0},
            "occurs twice",
        ),
        (
            {"tokens": ["a", "b"], "token_type": [1, 1], "eos_token_id": 0, "scores": [0.0, 0.0]},
            "has no unknown token, and not a token for every byte",
        ),
    ],
)
def test_errors(changes: dict[str, object], message: str) -> None:
    changed = {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
    with pytest.raises(SourceError, match=rf"^x\.gguf: .*{message}"):
        rebuild(keys("llama") | changed)
