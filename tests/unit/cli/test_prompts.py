import gzip
from pathlib import Path

import pytest

from speccompile.cli.prompts import read_prompts
from speccompile.runtime.errors import RequestError

JSON_LINES = (
    '{"prompt": "one\\ntwo"}\n\n{"turns": ["first", "second"]}\n{"prompt": "a\u2028b\\\\n"}\n'
)


def test_the_list_that_ships_has_prompts_with_line_breaks() -> None:
    prompts = read_prompts()
    assert len(prompts) >= 8
    assert any("\n" in prompt for prompt in prompts)
    assert not any("\\n" in prompt for prompt in prompts)


def test_text_has_a_prompt_a_line(tmp_path: Path) -> None:
    path = tmp_path / "p.txt"
    path.write_bytes("\ufeffone\\ntwo\r\n\r\n  \r\nlast".encode())
    assert read_prompts(path) == ["one\ntwo", "last"]


def test_json_lines_have_a_prompt_or_turns(tmp_path: Path) -> None:
    path, packed = tmp_path / "p.jsonl", tmp_path / "p.jsonl.gz"
    path.write_text(JSON_LINES, encoding="utf-8")
    packed.write_bytes(gzip.compress(JSON_LINES.encode()))
    assert read_prompts(path) == ["one\ntwo", "first", "a\u2028b\\n"]
    assert read_prompts(packed) == read_prompts(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('"prompt"', "needs a text under `prompt`"),
        ('{"prompt": 3}', "needs a text under `prompt`"),
        ('{"prompt": "  "}', "needs a text under `prompt`"),
        ('{"turns": []}', "needs a text under `prompt`"),
        ('{"prompt": "\\ud800"}', "surrogates not allowed"),
    ],
)
def test_a_line_that_is_no_prompt_is_named(tmp_path: Path, line: str, message: str) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(f'{{"prompt": "good"}}\n{line}\n', encoding="utf-8")
    with pytest.raises(RequestError, match=message) as caught:
        read_prompts(path)
    assert str(caught.value).startswith(f"{path}:2: ")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.txt", b"", "has no prompts"),
        ("p.txt", b"\xff\xfe", "is not UTF-8"),
        ("p.csv", b"one", "must end in"),
        ("p.jsonl.gz", b"plain", "is not a whole gzip file"),
        (
            "p.jsonl.gz",
            gzip.compress(JSON_LINES.encode(), mtime=0)[:-9],
            "is not a whole gzip file",
        ),
    ],
)
def test_a_file_that_is_no_list_is_named(
    tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(RequestError, match=message) as caught:
        read_prompts(path)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_file_that_is_absent_is_named(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"absent\.txt: No such file"):
        read_prompts(tmp_path / "absent.txt")
