"""Byte-level BPE (``tokenizer.ggml.model`` gpt2): any text, as bytes written in 256 characters."""

from __future__ import annotations

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel
from tokenizers.models import BPE
from tokenizers.normalizers import NFC

from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.metadata import Metadata
from speccompile.compiler.sources.pre_tokenizers import SPLITTINGS, Splitting
from speccompile.compiler.sources.vocabulary import Vocabulary, read_merges, token_ids

__all__ = ["byte_level_bpe", "splitting_of"]


def splitting_of(metadata: Metadata) -> Splitting:
    """The rule that ``tokenizer.ggml.pre`` names.

    Raises SourceError for an unknown one: a near miss would silently give other tokens.
    """
    name = metadata.required("tokenizer.ggml.pre", str)
    if name not in SPLITTINGS:
        raise SourceError(
            f"{metadata.where}: tokenizer.ggml.pre {name} is not supported; "
            f"supported: {', '.join(SPLITTINGS)}"
        )
    return SPLITTINGS[name]


def byte_level_bpe(metadata: Metadata, vocabulary: Vocabulary) -> Tokenizer:
    """Rebuild the tokenizer, without added tokens; raises SourceError for contradicting merges."""
    splitting = splitting_of(metadata)
    ids = token_ids(vocabulary.where, vocabulary.tokens)
    merges = read_merges(metadata, ids)
    tokenizer = Tokenizer(BPE(ids, merges, ignore_merges=splitting.whole_tokens))
    if splitting.composed:
        tokenizer.normalizer = NFC()
    tokenizer.pre_tokenizer = splitting.pre_tokenizer()
    tokenizer.decoder = ByteLevel()
    return tokenizer
