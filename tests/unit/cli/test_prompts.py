import gzip
import json
from itertools import pairwise
from pathlib import Path

import pytest

from speccompile.cli.prompts import SHIPPED_SETS, Prompt, read_prompts, read_sets, select
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


def write_set(path: Path, *prompts: tuple[str, str]) -> str:
    lines = [json.dumps({"turns": [text, "more"], "category": name}) for text, name in prompts]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def test_prompts_know_their_set_and_category(tmp_path: Path) -> None:
    spec = write_set(tmp_path / "spec.jsonl", ("one", "qa"), ("two", "rag"))
    plain = tmp_path / "plain.v2.txt"
    plain.write_text("three\n", encoding="utf-8")
    packed = tmp_path / "packed.jsonl.gz"
    packed.write_bytes(gzip.compress(b'{"prompt": "four", "test": "x"}'))
    found = read_sets([spec, str(plain), str(packed)])
    assert found == [
        Prompt("one", "spec", "qa"),
        Prompt("two", "spec", "rag"),
        Prompt("three", "plain.v2"),
        Prompt("four", "packed"),
    ]
    assert [prompt.labels for prompt in found[1:3]] == [("spec", "rag"), ("plain.v2",)]


def test_a_category_that_is_no_text_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "good", "category": 3}', encoding="utf-8")
    with pytest.raises(RequestError, match=r"p\.jsonl:1: has a `category` that is no text"):
        read_sets([str(path)])


def test_without_a_source_the_list_that_ships_is_read() -> None:
    assert [prompt.text for prompt in read_sets([])] == read_prompts()


def test_sets_and_categories_take_turns() -> None:
    prompts = [
        *(Prompt(f"a{number}", "a", "x") for number in range(3)),
        *(Prompt(f"b{number}", "a", "y") for number in range(2)),
        *(Prompt(f"c{number}", "c") for number in range(4)),
    ]
    texts = [prompt.text for prompt in select(prompts)]
    assert texts == ["a0", "c0", "b0", "c1", "a1", "c2", "b1", "c3", "a2"]
    assert [prompt.text for prompt in select(prompts, most=1)] == ["a0", "c0", "b0"]


def test_categories_and_sets_can_be_chosen() -> None:
    prompts = [Prompt("1", "a", "x"), Prompt("2", "a", "y"), Prompt("3", "b")]
    assert [each.text for each in select(prompts, categories=["y", "b"])] == ["2", "3"]
    assert [each.text for each in select(prompts, categories=["a"])] == ["1", "2"]
    with pytest.raises(RequestError, match="'z'; choose of a, b, x, y"):
        select(prompts, categories=["z"])
    long = [Prompt("1", "questions", "reasoning")]
    with pytest.raises(RequestError, match="did you mean reasoning"):
        select(long, categories=["reasonning"])


def test_a_set_that_does_not_ship_is_refused() -> None:
    with pytest.raises(RequestError, match="builtin:best: is not one of"):
        read_sets(["builtin:best"])


@pytest.mark.parametrize("name", SHIPPED_SETS)
def test_sets_that_ship_have_prompts_of_their_own(name: str) -> None:
    prompts = read_sets([f"builtin:{name}"])
    assert len(prompts) >= 8
    assert {prompt.labels for prompt in prompts} == {(name,)}
    assert len({prompt.text for prompt in prompts}) == len(prompts)


def test_texts_to_be_copied_are_long_and_those_that_cannot_be_guessed_say_nothing_twice() -> None:
    copied = [prompt.text for prompt in read_sets(["builtin:copy"])]
    assert min(map(len, copied)) > 150
    for prompt in read_sets(["builtin:hostile"]):
        pairs = list(pairwise(prompt.text.split()))
        assert len(set(pairs)) == len(pairs)
