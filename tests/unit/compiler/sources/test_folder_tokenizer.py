from __future__ import annotations

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE

from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.folder_tokenizer import folder_tokenizer
from speccompile.compiler.sources.metadata import Metadata


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    Tokenizer(BPE({"a": 0, "<s>": 1, "</s>": 2}, [])).save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def config(**values: object) -> Metadata:
    return Metadata("config.json", values)


def write(folder: Path, name: str, **values: object) -> None:
    (folder / name).write_text(json.dumps(values))


def test_tokenizer_alone(folder: Path) -> None:
    files = folder_tokenizer(folder, config())
    assert Tokenizer.from_str(files.tokenizer_json).token_to_id("</s>") == 2
    assert (files.bos_token_id, files.bos_token) == (None, None)
    assert (files.eos_token_ids, files.eos_token) == ((), None)
    assert files.chat_template is None


def test_ids_of_the_generation_settings_come_first(folder: Path) -> None:
    write(folder, "generation_config.json", bos_token_id=0, eos_token_id=[2, 1])
    files = folder_tokenizer(folder, config(bos_token_id=1, eos_token_id=0))
    assert (files.bos_token_id, files.eos_token_ids) == (0, (2, 1))


def test_ids_of_the_config_come_next(folder: Path) -> None:
    write(folder, "generation_config.json", eos_token_id=None)
    write(folder, "tokenizer_config.json", bos_token="<s>", eos_token="</s>")
    files = folder_tokenizer(folder, config(bos_token_id=0, eos_token_id=0))
    assert (files.bos_token_id, files.eos_token_ids) == (0, (0,))


def test_ids_of_the_tokens_come_last(folder: Path) -> None:
    write(folder, "tokenizer_config.json", bos_token="<s>", eos_token={"content": "</s>"})
    files = folder_tokenizer(folder, config())
    assert (files.bos_token_id, files.bos_token) == (1, "<s>")
    assert (files.eos_token_ids, files.eos_token) == ((2,), "</s>")


def test_chat_template_in_the_settings(folder: Path) -> None:
    write(folder, "tokenizer_config.json", chat_template="{{ messages }}")
    assert folder_tokenizer(folder, config()).chat_template == "{{ messages }}"


def test_default_of_several_chat_templates(folder: Path) -> None:
    named = [{"name": "tools", "template": "x"}, {"name": "default", "template": "y"}]
    write(folder, "tokenizer_config.json", chat_template=named)
    assert folder_tokenizer(folder, config()).chat_template == "y"


def test_chat_template_in_its_own_file_comes_first(folder: Path) -> None:
    write(folder, "tokenizer_config.json", chat_template="x")
    (folder / "chat_template.jinja").write_text("y\n")
    assert folder_tokenizer(folder, config()).chat_template == "y\n"


def test_no_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"tokenizer\.json: no such file"):
        folder_tokenizer(tmp_path, config())


@pytest.mark.parametrize("contents", [b"{}", b"\xff"])
def test_malformed_tokenizer(folder: Path, contents: bytes) -> None:
    (folder / "tokenizer.json").write_bytes(contents)
    with pytest.raises(SourceError, match=r"tokenizer\.json: not readable as a tokenizer"):
        folder_tokenizer(folder, config())


def test_malformed_settings(folder: Path) -> None:
    write(folder, "generation_config.json", eos_token_id="</s>")
    with pytest.raises(SourceError, match=r"generation_config\.json: eos_token_id must be of type"):
        folder_tokenizer(folder, config())
