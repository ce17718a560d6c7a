"""T5's tokenizer from ``spiece.model``, the file of SentencePiece: a Unigram model.

The file is a protocol buffer (sentencepiece_model.proto), of which four fields count: the pieces
with their scores and types, the kind of model, and the table that normalizes characters.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import Metaspace as Joined
from tokenizers.models import Unigram
from tokenizers.normalizers import Precompiled
from tokenizers.pre_tokenizers import Metaspace, Sequence, WhitespaceSplit

from speccompile.compiler.sources.checkpoint import SourceError

__all__ = ["read_spiece"]

_PIECES, _TRAINER, _NORMALIZER = 1, 2, 3
_TEXT, _SCORE, _TYPE = 1, 2, 3  # of a piece
_UNKNOWN, _CONTROL = 2, 3  # types
_MODEL_TYPE, _UNIGRAM = 3, 1
_CHARACTERS = 2  # of the normalizer

_Field = tuple[int, int | bytes]


def read_spiece(path: Path, *, extra_ids: int) -> Tokenizer:
    """The tokenizer as transformers makes it: `extra_ids` sentinels follow the pieces.

    Raises SourceError for a file that is not such a model.
    """
    try:
        return _tokenizer(list(_fields(path.read_bytes())), path, extra_ids)
    except (OSError, ValueError, IndexError, struct.error, KeyError, TypeError) as error:
        raise SourceError(f"{path}: not readable as a SentencePiece model ({error})") from error


def _tokenizer(fields: list[_Field], path: Path, extra_ids: int) -> Tokenizer:
    pieces: list[tuple[str, float]] = []
    special: list[str] = []
    unknown: int | None = None
    characters = b""
    for number, value in fields:
        if number == _PIECES:
            piece = dict(_fields(_message(value)))
            text = _message(piece[_TEXT]).decode()
            if piece.get(_TYPE) in (_UNKNOWN, _CONTROL):
                special.append(text)
            if piece.get(_TYPE) == _UNKNOWN:
                unknown = len(pieces)
            (score,) = struct.unpack("<f", _message(piece.get(_SCORE, bytes(4))))
            pieces.append((text, score))
        elif number == _TRAINER:
            kind = dict(_fields(_message(value))).get(_MODEL_TYPE, _UNIGRAM)
            if kind != _UNIGRAM:
                raise SourceError(f"{path}: is no Unigram model, the one kind that is read")
        elif number == _NORMALIZER:
            characters = _message(dict(_fields(_message(value))).get(_CHARACTERS, b""))
    sentinels = [f"<extra_id_{index}>" for index in reversed(range(extra_ids))]
    vocabulary = [*pieces, *((text, 0.0) for text in sentinels)]
    tokenizer = Tokenizer(Unigram(vocabulary, unk_id=unknown, byte_fallback=False))
    if characters:
        tokenizer.normalizer = Precompiled(characters)
    tokenizer.pre_tokenizer = Sequence([WhitespaceSplit(), Metaspace()])
    tokenizer.decoder = Joined()
    tokenizer.add_special_tokens(
        [AddedToken(text, normalized=False, special=True) for text in (*special, *sentinels)]
    )
    return tokenizer


def _fields(data: bytes) -> Iterator[_Field]:
    """Number and value of each field: an integer, or the bytes of a text, a message, a number."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        else:
            size = {1: 8, 5: 4}[kind]
        if at + size > len(data):
            raise ValueError("it ends in the middle of a field")
        yield number, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """The number that begins `at`, and where it ends."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _message(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise TypeError("a field is of another type")
    return value
