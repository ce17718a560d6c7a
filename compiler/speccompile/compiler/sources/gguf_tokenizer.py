"""A tokenizer rebuilt from the vocabulary that a GGUF file carries (its ``tokenizer.*`` keys)."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer
from tokenizers.processors import TemplateProcessing

from speccompile.compiler.sources.byte_level import byte_level_bpe, splitting_of
from speccompile.compiler.sources.checkpoint import SourceError, TokenizerFiles
from speccompile.compiler.sources.metadata import Metadata
from speccompile.compiler.sources.sentencepiece import respelled, sentencepiece_bpe
from speccompile.compiler.sources.vocabulary import TokenKind, Vocabulary, read_vocabulary

__all__ = ["gguf_tokenizer"]


def gguf_tokenizer(metadata: Metadata) -> TokenizerFiles:
    """Rebuild the tokenizer; of several chat templates, the default one is kept.

    Raises SourceError unless it is a BPE that this module's neighbours can rebuild exactly.
    """
    model = metadata.required("tokenizer.ggml.model", str)
    if model not in ("gpt2", "llama"):
        raise SourceError(
            f"{metadata.where}: tokenizer.ggml.model {model} is not supported; "
            "supported: gpt2 (byte-level BPE), llama (SentencePiece BPE)"
        )
    vocabulary = read_vocabulary(metadata)
    if model == "gpt2":
        tokenizer, adds_bos = byte_level_bpe(metadata, vocabulary), splitting_of(metadata).adds_bos
    else:
        tokenizer, adds_bos = sentencepiece_bpe(metadata, vocabulary), True
    _add_tokens(tokenizer, metadata, vocabulary)
    _add_ends(tokenizer, metadata, vocabulary, adds_bos=adds_bos)
    return TokenizerFiles(
        tokenizer_json=tokenizer.to_str(),
        chat_template=metadata.optional("tokenizer.chat_template", str),
        bos_token_id=vocabulary.bos,
        eos_token_ids=vocabulary.ends,
        bos_token=vocabulary.text(vocabulary.bos),
        eos_token=vocabulary.text(vocabulary.eos),
    )


def _add_tokens(tokenizer: Tokenizer, metadata: Metadata, vocabulary: Vocabulary) -> None:
    """Mark the tokens that are found in text before anything else is.

    They are in the vocabulary, so that adding them leaves their ids. Runs of spaces are left to the
    merges of SentencePiece, as in Gemma's own tokenizer.
    """
    sentencepiece = metadata.values.get("tokenizer.ggml.model") == "llama"
    strips = sentencepiece and metadata.values.get("general.architecture") == "phi3"
    special: list[AddedToken] = []
    plain: list[AddedToken] = []
    for token, kind in vocabulary.items():
        # GGUF does not tell which tokens swallow the white space after them: these of Phi-3 do.
        strip = strips and token not in ("<unk>", "<s>", "<|endoftext|>")
        if kind in (TokenKind.CONTROL, TokenKind.UNKNOWN):
            special.append(AddedToken(token, normalized=False, rstrip=strip))
        elif kind is TokenKind.USER_DEFINED and not (sentencepiece and respelled(token) != token):
            plain.append(AddedToken(token, normalized=False, rstrip=strip))
    tokenizer.add_special_tokens(special)
    tokenizer.add_tokens(plain)


def _add_ends(
    tokenizer: Tokenizer, metadata: Metadata, vocabulary: Vocabulary, *, adds_bos: bool
) -> None:
    """Let encoded text begin and end as the file asks for, by default with `adds_bos`."""
    stated = metadata.optional("tokenizer.ggml.add_bos_token", bool)
    before, after = vocabulary.bos, vocabulary.eos
    if not (adds_bos if stated is None else stated):
        before = None
    if not metadata.optional("tokenizer.ggml.add_eos_token", bool):
        after = None
    if before is None and after is None:
        return
    begin = [] if before is None else [vocabulary.tokens[before]]
    end = [] if after is None else [vocabulary.tokens[after]]
    ids = [(vocabulary.tokens[token], token) for token in (before, after) if token is not None]
    tokenizer.post_processor = TemplateProcessing(
        single=[*begin, "$A", *end],
        pair=[*begin, "$A", *end, *begin, "$B", *end],
        special_tokens=list(dict.fromkeys(ids)),
    )
