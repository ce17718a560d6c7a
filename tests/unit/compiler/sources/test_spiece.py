"""spiece.model files, written field by field, give the tokenizer that transformers makes."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import T5Tokenizer

from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.folder_tokenizer import folder_tokenizer
from speccompile.compiler.sources.metadata import Metadata
from speccompile.compiler.sources.spiece import read_spiece
from speccompile.compiler.texts import probe_text
from tests.t5_models import t5_tokenizer

EXTRA = 100


def test_it_is_the_tokenizer_of_transformers(tmp_path: Path) -> None:
    pieces = _pieces()
    (tmp_path / "spiece.model").write_bytes(_model(pieces))
    ours = read_spiece(tmp_path / "spiece.model", extra_ids=EXTRA)
    # As its converter of such files does: the last sentinel comes first.
    sentinels = [(f"<extra_id_{index}>", 0.0) for index in reversed(range(EXTRA))]
    theirs: Any = T5Tokenizer(vocab=[*pieces, *sentinels], extra_ids=EXTRA)
    assert ours.get_vocab() == theirs.get_vocab()
    for line in [*probe_text().splitlines(), "a <extra_id_0> b</s>", " two  spaces "]:
        ids = theirs.encode(line, add_special_tokens=False)
        assert ours.encode(line, add_special_tokens=False).ids == ids
        assert ours.decode(ids) == theirs.decode(
            ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
        )


def test_a_folder_without_tokenizer_json_is_read_by_it(tmp_path: Path) -> None:
    (tmp_path / "spiece.model").write_bytes(_model(_pieces()))
    (tmp_path / "tokenizer_config.json").write_text('{"extra_ids": 7}', encoding="utf-8")
    config = Metadata("config.json", {"eos_token_id": 1})
    files = folder_tokenizer(tmp_path, config, ends_texts=True)
    assert files.eos_token_ids == (1,)
    content = json.loads(files.tokenizer_json)
    assert len(content["model"]["vocab"]) == len(_pieces()) + 7
    ids = read_spiece(tmp_path / "spiece.model", extra_ids=7).encode("The sky").ids
    from tokenizers import Tokenizer

    assert Tokenizer.from_str(files.tokenizer_json).encode("The sky").ids == [*ids, 1]


def _cut(data: bytes) -> bytes:
    return data[:-3]


def _of_another_format(data: bytes) -> bytes:
    return b"\x0b" + data


def _of_another_kind(data: bytes) -> bytes:
    return data + _field(2, 2, b"\x18\x02")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_cut, "not readable as a SentencePiece model"),
        (_of_another_format, "not readable as a SentencePiece model"),
        (_of_another_kind, "is no Unigram model"),
    ],
)
def test_another_file_is_refused_in_one_line(
    tmp_path: Path, change: Callable[[bytes], bytes], message: str
) -> None:
    path = tmp_path / "spiece.model"
    path.write_bytes(change(_model(_pieces())))
    with pytest.raises(SourceError, match=rf"\A.*spiece\.model: {message}.*\Z"):
        read_spiece(path, extra_ids=EXTRA)


def _pieces() -> list[tuple[str, float]]:
    """Those of a trained tokenizer, scores as the file keeps them."""
    vocabulary = json.loads(t5_tokenizer().to_str())["model"]["vocab"]
    return [(text, struct.unpack("<f", struct.pack("<f", score))[0]) for text, score in vocabulary]


def _model(pieces: list[tuple[str, float]]) -> bytes:
    types = {"<pad>": 3, "</s>": 3, "<unk>": 2}
    messages = [
        _field(1, 2, text.encode())
        + _field(2, 5, struct.pack("<f", score))
        + _field(3, 0, bytes([types.get(text, 1)]))
        for text, score in pieces
    ]
    trainer = _field(3, 0, b"\x01")
    return b"".join(_field(1, 2, message) for message in messages) + _field(2, 2, trainer)


def _field(number: int, kind: int, content: bytes) -> bytes:
    size = len(content)
    length = (
        b"" if kind != 2 else bytes([size]) if size < 128 else bytes([size & 127 | 128, size >> 7])
    )
    return bytes([number << 3 | kind]) + length + content
