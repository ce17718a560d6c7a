"""Every rule against the tokenizer of a family that uses it, as transformers builds that."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
from tokenizers.trainers import BpeTrainer
from transformers import GPT2Tokenizer, Qwen2Tokenizer
from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer

from speccompile.compiler.sources.gguf_tokenizer import gguf_tokenizer
from speccompile.compiler.sources.metadata import Metadata
from speccompile.compiler.sources.pre_tokenizers import SPLITTINGS
from tests.texts import TEXTS

CONTROL = ("<|endoftext|>", "<|im_start|>")
USER_DEFINED = "<tool>"
WITH_TOKENS = (
    "<|im_start|>user\nHi there<|endoftext|>\n",
    " <|im_start|>  <tool> a<tool>b\n<tool>\n<|endoftext|><|endoftext|> ",
    "<|im_start |> <|endoftext| cafe\u0301<tool>\u0301",
)


@cache
def trained() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tokens and merges that cross words, so that another splitting gives other tokens."""
    tokenizer = Tokenizer(BPE())
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=False)
    alphabet = ByteLevel.alphabet()
    trainer = BpeTrainer(
        vocab_size=900, min_frequency=2, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 2, trainer)
    vocabulary = tokenizer.get_vocab()
    tokens = [*sorted(vocabulary, key=vocabulary.__getitem__), *CONTROL, USER_DEFINED]
    written: list[tuple[str, str]] = _merges(tokenizer)
    return tuple(tokens), tuple(f"{left} {right}" for left, right in written)


@cache
def rebuilt(pre: str) -> Tokenizer:
    tokens, merges = trained()
    types = [1] * (len(tokens) - 3) + [3, 3, 4]
    keys = {
        "model": "gpt2",
        "pre": pre,
        "tokens": list(tokens),
        "merges": list(merges),
        "token_type": types,
    }
    metadata = Metadata("x.gguf", {f"tokenizer.ggml.{key}": value for key, value in keys.items()})
    return Tokenizer.from_str(gguf_tokenizer(metadata).tokenizer_json)


@cache
def reference(pre: str) -> Tokenizer:
    tokens, merges = trained()
    vocabulary = {token: index for index, token in enumerate(tokens)}
    pairs = [tuple(merge.split(" ")) for merge in merges]
    tokenizer: Tokenizer = REFERENCES[pre](vocabulary, pairs)
    tokenizer.add_special_tokens([AddedToken(token, normalized=False) for token in CONTROL])
    tokenizer.add_tokens([AddedToken(USER_DEFINED, normalized=False)])
    return tokenizer


@pytest.mark.parametrize("pre", sorted(SPLITTINGS.keys() - {"default"}))
@pytest.mark.parametrize("text", [*TEXTS, *WITH_TOKENS, "\n".join(TEXTS)])
def test_tokens_are_the_family_s(pre: str, text: str) -> None:
    assert_same(pre, text)


@pytest.mark.parametrize("pre", sorted(SPLITTINGS.keys() - {"default"}))
@settings(max_examples=60, deadline=None)
@given(text=st.text() | st.text("aB1' \n\t<|>-\u0301\u4f60\U0001f389's", max_size=30))
def test_tokens_of_any_text_are_the_family_s(pre: str, text: str) -> None:
    assert_same(pre, text)


def assert_same(pre: str, text: str) -> None:
    ids = rebuilt(pre).encode(text).ids
    assert ids == reference(pre).encode(text, add_special_tokens=False).ids
    for skipped in (False, True):
        decoded = rebuilt(pre).decode(ids, skip_special_tokens=skipped)
        assert decoded == reference(pre).decode(ids, skip_special_tokens=skipped)


@pytest.mark.parametrize(
    "names",
    [*combinations(["gpt-2", "smollm", "dbrx", "qwen2", "gpt-4o", "tekken", "default"], 2)],
    ids="-".join,
)
def test_another_rule_gives_other_tokens(names: tuple[str, str]) -> None:
    one, other = (
        [rebuilt(name).encode(text, add_special_tokens=False).ids for text in TEXTS]
        for name in names
    )
    assert one != other


def test_whole_tokens_and_bos_are_those_of_the_family() -> None:
    """The merges of a token are left out: only with `whole_tokens` is it still found."""
    llama3 = {"llama-bpe", "llama3", "llama-v3"}
    keys = {
        "model": "gpt2",
        "tokens": [*sorted(ByteLevel.alphabet()), "he"],
        "token_type": [1] * 257,
        "merges": [],
        "bos_token_id": 0,
    }
    for pre in SPLITTINGS:
        values = {f"tokenizer.ggml.{key}": value for key, value in (keys | {"pre": pre}).items()}
        tokenizer = Tokenizer.from_str(gguf_tokenizer(Metadata("x", values)).tokenizer_json)
        ids = tokenizer.encode("he").ids
        assert (ids[-1] == 256) == (pre in {*llama3, "smaug-bpe", "tekken"}), pre
        assert (ids[0] == 0) == (pre in {*llama3, "tekken"}), pre


Merges = list[Any]  # pairs, which transformers takes, but declares as strings
Build = Callable[[dict[str, int], Merges], Tokenizer]


def _merges(tokenizer: Tokenizer) -> list[tuple[str, str]]:
    return [(left, right) for left, right in json.loads(tokenizer.to_str())["model"]["merges"]]


def _gpt2(vocabulary: dict[str, int], merges: Merges) -> Tokenizer:
    return GPT2Tokenizer(vocab=vocabulary, merges=merges).backend_tokenizer


def _qwen2(vocabulary: dict[str, int], merges: Merges) -> Tokenizer:
    return Qwen2Tokenizer(vocab=vocabulary, merges=merges).backend_tokenizer


def _starcoder(vocabulary: dict[str, int], merges: Merges) -> Tokenizer:
    """The pre-tokenizer in the tokenizer.json of SmolLM2 and of Granite."""
    tokenizer = _gpt2(vocabulary, merges)
    tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    )
    return tokenizer


def _from_gguf(pre: str, *, whole_tokens: bool = False) -> Build:
    def build(vocabulary: dict[str, int], merges: Merges) -> Tokenizer:
        contents = {
            "tokenizer_type": "gpt2",
            "pre_tokenizer_type": pre,
            "tokens": list(vocabulary),
            "merges": [" ".join(merge) for merge in merges],
        }
        tokenizer, _ = convert_gguf_tokenizer("llama", contents)
        # transformers leaves this out of what it builds from GGUF; its own TikTokenConverter,
        # and the published tokenizers, set it.
        tokenizer.model.ignore_merges = whole_tokens
        return tokenizer

    return build


REFERENCES: dict[str, Build] = {
    "gpt-2": _gpt2,
    "smollm": _starcoder,
    "refact": _starcoder,
    "qwen2": _qwen2,
    "llama-bpe": _from_gguf("llama-bpe", whole_tokens=True),
    "llama3": _from_gguf("llama3", whole_tokens=True),
    "llama-v3": _from_gguf("llama-v3", whole_tokens=True),
    "smaug-bpe": _from_gguf("smaug-bpe", whole_tokens=True),
    "dbrx": _from_gguf("dbrx"),
    "gpt-4o": _from_gguf("gpt-4o"),
    "tekken": _from_gguf("tekken", whole_tokens=True),
}
