"""A tokenizer rebuilt from the vocabulary and merges that a GGUF file carries.

GGUF names the splitting of text before merging instead of describing it. The rules by name are
llama.cpp's (src/llama-vocab.cpp); an unknown name is refused, for a near miss would silently
give other tokens.
"""

from __future__ import annotations

from tokenizers import AddedToken, Regex, Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Sequence, Split
from tokenizers.processors import TemplateProcessing

from speccompile.compiler.sources.checkpoint import SourceError, TokenizerFiles
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["gguf_tokenizer"]

_CONTROL, _USER_DEFINED = 3, 4  # of tokenizer.ggml.token_type


def gguf_tokenizer(metadata: Metadata) -> TokenizerFiles:
    """Rebuild the tokenizer that the ``tokenizer.ggml.*`` keys describe.

    Raises SourceError unless it is a byte-level BPE with a known way of splitting text.
    """
    tokens = metadata.sequence("tokenizer.ggml.tokens", str)
    bos = metadata.optional("tokenizer.ggml.bos_token_id", int)
    eos = metadata.optional("tokenizer.ggml.eos_token_id", int)
    end_of_turn = metadata.optional("tokenizer.ggml.eot_token_id", int)
    for token_id in (bos, eos, end_of_turn):
        if token_id is not None and not 0 <= token_id < len(tokens):
            raise SourceError(
                f"{metadata.where}: token id {token_id} is outside the vocabulary of {len(tokens)}"
            )
    bos_token = None if bos is None else tokens[bos]
    tokenizer = _byte_level_bpe(metadata, tokens)
    if bos_token is not None and _adds_bos(metadata):
        tokenizer.post_processor = TemplateProcessing(
            single=[bos_token, "$A"],
            pair=[bos_token, "$A", bos_token, "$B"],
            special_tokens=[(bos_token, tokens.index(bos_token))],
        )
    return TokenizerFiles(
        tokenizer_json=tokenizer.to_str(),
        chat_template=metadata.optional("tokenizer.chat_template", str),
        bos_token_id=bos,
        eos_token_ids=tuple(dict.fromkeys(i for i in (eos, end_of_turn) if i is not None)),
        bos_token=bos_token,
        eos_token=None if eos is None else tokens[eos],
    )


def _byte_level_bpe(metadata: Metadata, tokens: list[str]) -> Tokenizer:
    model = metadata.required("tokenizer.ggml.model", str)
    if model != "gpt2":
        raise SourceError(
            f"{metadata.where}: tokenizer.ggml.model {model} is not supported; "
            "supported: gpt2 (byte-level BPE)"
        )
    splitting = metadata.required("tokenizer.ggml.pre", str)
    if splitting not in _PRE_TOKENIZERS:
        raise SourceError(
            f"{metadata.where}: tokenizer.ggml.pre {splitting} is not supported; "
            f"supported: {', '.join(_PRE_TOKENIZERS)}"
        )
    merges = metadata.sequence("tokenizer.ggml.merges", str)
    tokenizer = Tokenizer(_model(metadata, tokens, merges, whole_tokens=splitting == "llama-bpe"))
    tokenizer.pre_tokenizer = _PRE_TOKENIZERS[splitting]
    tokenizer.decoder = ByteLevelDecoder()
    types = metadata.sequence("tokenizer.ggml.token_type", int)
    if len(types) != len(tokens):
        raise SourceError(
            f"{metadata.where}: has {len(types)} token types for {len(tokens)} tokens"
        )
    kinds = list(zip(tokens, types, strict=True))
    # They are in the vocabulary, so that adding them marks them and leaves their ids.
    tokenizer.add_special_tokens(
        [AddedToken(token, normalized=False) for token, kind in kinds if kind == _CONTROL]
    )
    tokenizer.add_tokens(
        [AddedToken(token, normalized=False) for token, kind in kinds if kind == _USER_DEFINED]
    )
    return tokenizer


def _model(metadata: Metadata, tokens: list[str], merges: list[str], *, whole_tokens: bool) -> BPE:
    """Merge rules; with `whole_tokens`, a piece that is a token needs no merges to become it."""
    vocabulary = {token: index for index, token in enumerate(tokens)}
    pairs = [(left, right) for left, _, right in (merge.partition(" ") for merge in merges)]
    unknown = [
        token for pair in pairs for token in (*pair, "".join(pair)) if token not in vocabulary
    ]
    if unknown or len(vocabulary) != len(tokens):
        raise SourceError(
            f"{metadata.where}: the tokenizer's tokens and merges contradict each other "
            f"({f'{unknown[0]!r} is no token' if unknown else 'a token occurs twice'})"
        )
    return BPE(vocabulary, pairs, ignore_merges=whole_tokens)


def _adds_bos(metadata: Metadata) -> bool:
    stated = metadata.optional("tokenizer.ggml.add_bos_token", bool)
    return metadata.values.get("tokenizer.ggml.pre") == "llama-bpe" if stated is None else stated


def _splits(*patterns: str) -> PreTokenizer:
    """Cut at the matches of each pattern in turn, keeping matches and what lies between them."""
    return Sequence(
        [
            *(Split(Regex(pattern), "isolated") for pattern in patterns),
            ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


_PRE_TOKENIZERS: dict[str, PreTokenizer] = {
    "gpt-2": ByteLevel(add_prefix_space=False),
    "smollm": Sequence([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]),
    "llama-bpe": _splits(
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
        r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
    ),
    # What llama.cpp applies to a file whose converter did not know the tokenizer.
    "default": _splits(
        r"[\p{P}\$\+<=>\^~\|]+",
        r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)",
        r"\p{N}+",
        r"[0-9][0-9][0-9]",
    ),
}
