"""The vocabulary of a GGUF file: its tokens, what each is for, and which of them end a text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum

from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["TokenKind", "Vocabulary", "read_merges", "read_vocabulary", "token_ids"]


class TokenKind(IntEnum):
    """The numbers of ``tokenizer.ggml.token_type``."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id; `bos` and `eos` are ids, and generation stops at each of `ends`."""

    where: str
    tokens: list[str]
    kinds: list[TokenKind]
    bos: int | None
    eos: int | None
    ends: tuple[int, ...]

    def items(self) -> Iterator[tuple[str, TokenKind]]:
        return zip(self.tokens, self.kinds, strict=True)

    def text(self, token: int | None) -> str | None:
        return None if token is None else self.tokens[token]


def read_vocabulary(metadata: Metadata) -> Vocabulary:
    """Read ``tokenizer.ggml.tokens``, ``token_type`` and the special ids.

    Raises SourceError if they contradict each other.
    """
    tokens = metadata.sequence("tokenizer.ggml.tokens", str)
    token_ids(metadata.where, tokens)
    types = metadata.sequence("tokenizer.ggml.token_type", int)
    if len(types) != len(tokens):
        raise SourceError(
            f"{metadata.where}: has {len(types)} token types for {len(tokens)} tokens"
        )
    known = set(TokenKind)
    if unknown := set(types) - known:
        raise SourceError(f"{metadata.where}: token type {min(unknown)} is unknown")
    used = _without_padding(tokens, types)
    tokens, types = tokens[:used], types[:used]
    # Files differ in whether they mark these as control tokens; they are never text.
    kinds = [
        TokenKind.CONTROL if token in _ENDS else TokenKind(kind)
        for token, kind in zip(tokens, types, strict=True)
    ]
    eos = _token_id(metadata, "eos", len(tokens))
    stated = [eos, *(_token_id(metadata, name, len(tokens)) for name in ("eot", "eom"))]
    written = [index for index, token in enumerate(tokens) if token in _ENDS]
    return Vocabulary(
        where=metadata.where,
        tokens=tokens,
        kinds=kinds,
        bos=_token_id(metadata, "bos", len(tokens)),
        eos=eos,
        ends=tuple(dict.fromkeys(token for token in [*stated, *written] if token is not None)),
    )


def _without_padding(tokens: list[str], types: list[int]) -> int:
    """How many tokens are the tokenizer's own: converters name one for every row that only rounds
    the embedding up, which other copies of the model do not have."""
    used = len(tokens)
    while used and types[used - 1] == TokenKind.UNUSED and tokens[used - 1] == f"[PAD{used - 1}]":
        used -= 1
    return used


def token_ids(where: str, tokens: list[str]) -> dict[str, int]:
    """The id of each token; raises SourceError if one occurs twice."""
    ids: dict[str, int] = {}
    for index, token in enumerate(tokens):
        if ids.setdefault(token, index) != index:
            raise SourceError(f"{where}: token {token!r:.80} occurs twice in the vocabulary")
    return ids


def read_merges(metadata: Metadata, ids: Mapping[str, int]) -> list[tuple[str, str]]:
    """Read ``tokenizer.ggml.merges``; raises SourceError if one leads outside the vocabulary."""
    merges = metadata.sequence("tokenizer.ggml.merges", str)
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    for left, right in pairs:
        if left not in ids or right not in ids or left + right not in ids:
            raise SourceError(
                f"{metadata.where}: the tokenizer's tokens and merges contradict each other "
                f"({left!r:.40} and {right!r:.40} do not merge into a token)"
            )
    return pairs


def _token_id(metadata: Metadata, name: str, count: int) -> int | None:
    token = metadata.optional(f"tokenizer.ggml.{name}_token_id", int)
    if token is not None and not 0 <= token < count:
        raise SourceError(
            f"{metadata.where}: {name} token id {token} is outside the vocabulary of {count}"
        )
    return token


_ENDS = frozenset(
    {
        "<|endoftext|>",  # GPT-2, Qwen, SmolLM, Phi, OLMo 2
        "<|im_end|>",  # ChatML: Qwen, SmolLM, Phi-4
        "<|end|>",  # Phi-3, Phi-4-mini
        *("<|end_of_text|>", "<|eot_id|>", "<|eom_id|>"),  # Llama 3; the first is Granite's too
        "<end_of_turn>",  # Gemma
    }
)
"""Tokens that end a turn or a text. Most files state one of theirs, while models emit any: a Gemma
file may name ``<eos>`` alone, and a generation would run through the end of every turn."""
