"""SentencePiece's BPE (``tokenizer.ggml.model`` llama): Llama 2, Mistral before Nemo, Phi-3, Gemma.

A space is written as U+2581; characters without a token of their own become tokens of their bytes.
SentencePiece merges whichever neighbours form the token of the highest score. `tokenizers` needs
that as a list of merges, which is made here as Hugging Face's converters make it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tokenizers import Tokenizer
from tokenizers.decoders import ByteFallback, Decoder, Fuse, Replace, Sequence, Strip
from tokenizers.models import BPE
from tokenizers.normalizers import Normalizer, Prepend
from tokenizers.normalizers import Replace as Respell
from tokenizers.normalizers import Sequence as Normalizers

from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.metadata import Metadata
from speccompile.compiler.sources.vocabulary import TokenKind, Vocabulary, read_merges, token_ids

__all__ = ["respelled", "sentencepiece_bpe"]

_SPACE = "\u2581"


def respelled(token: str) -> str:
    """Runs of spaces, which Gemma's files write literally, in SentencePiece's spelling."""
    return token if token.strip(" ") else token.replace(" ", _SPACE)


def sentencepiece_bpe(metadata: Metadata, vocabulary: Vocabulary) -> Tokenizer:
    """Rebuild the tokenizer, without added tokens.

    Raises SourceError for normalizations that the families of this format do not use.
    """
    _refuse_normalization(metadata)
    ids = token_ids(vocabulary.where, [respelled(token) for token in vocabulary.tokens])
    unknown = [token for token, kind in vocabulary.items() if kind is TokenKind.UNKNOWN]
    if not unknown and not all(f"<0x{byte:02X}>" in ids for byte in range(256)):
        raise SourceError(
            f"{metadata.where}: has no unknown token, and not a token for every byte; "
            "some text could not be written in its tokens"
        )
    stated = "tokenizer.ggml.merges" in metadata.values
    merges = read_merges(metadata, ids) if stated else _merges(_ranks(metadata, vocabulary))
    tokenizer = Tokenizer(
        BPE(
            ids,
            merges,
            unk_token=unknown[0] if unknown else None,
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefixed = metadata.optional("tokenizer.ggml.add_space_prefix", bool)
    spaces: list[Normalizer] = [Respell(" ", _SPACE)]
    decoders: list[Decoder] = [Replace(_SPACE, " "), ByteFallback(), Fuse()]
    if prefixed is None or prefixed:
        spaces.insert(0, Prepend(_SPACE))
        decoders.append(Strip(" ", 1, 0))
    tokenizer.normalizer = Normalizers(spaces)
    tokenizer.decoder = Sequence(decoders)
    return tokenizer


def _refuse_normalization(metadata: Metadata) -> None:
    if metadata.optional("tokenizer.ggml.remove_extra_whitespaces", bool):
        raise SourceError(
            f"{metadata.where}: tokenizer.ggml.remove_extra_whitespaces is not supported"
        )
    if metadata.optional("tokenizer.ggml.precompiled_charsmap", list):
        raise SourceError(
            f"{metadata.where}: a normalization table (tokenizer.ggml.precompiled_charsmap) "
            "is not supported"
        )


def _merges(ranks: Mapping[str, float]) -> list[tuple[str, str]]:
    """Every pair of tokens that forms a token, best first."""
    pairs = [
        (ranks[token], cut, len(token) - cut, token)
        for token in ranks
        for cut in range(1, len(token))
        if token[:cut] in ranks and token[cut:] in ranks
    ]
    # The sort is stable, also in reverse: what is equal stays in the vocabulary's order.
    pairs.sort(key=lambda pair: pair[:3], reverse=True)
    return [(token[:cut], token[cut:]) for _, cut, _, token in pairs]


def _ranks(metadata: Metadata, vocabulary: Vocabulary) -> Mapping[str, float]:
    """How early each token that merges may form is formed: the higher, the earlier.

    That is its score, but for Gemma, whose runs of spaces come first although converters give them
    the score of an added token; there the order of the vocabulary is that of the merges.
    """
    tokens = vocabulary.tokens
    if metadata.required("general.architecture", str).startswith("gemma"):
        scores = [-float(index) for index in range(len(tokens))]
    else:
        scores = metadata.sequence("tokenizer.ggml.scores", float)
    if len(scores) != len(tokens):
        raise SourceError(f"{metadata.where}: has {len(scores)} scores for {len(tokens)} tokens")
    return {
        respelled(token): score
        for (token, kind), score in zip(vocabulary.items(), scores, strict=True)
        if kind is TokenKind.NORMAL or respelled(token) != token
    }
