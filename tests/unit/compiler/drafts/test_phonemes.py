from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from speccompile.compiler.drafts.phonemes import read_dictionary, sentences, split_words
from speccompile.runtime.errors import SpeccompileError
from tests.dictionaries import write_dictionary

ENTRIES = """\
about AH0 B AW1 T
butter B AH1 T ER0
butter(2) B AH2 T AH0
church CH ER1 CH # of a comment
don't D OW1 N T
a.d. EY2 D IY1
"""


@pytest.fixture
def words(tmp_path: Path) -> dict[str, str]:
    return read_dictionary(write_dictionary(tmp_path / "words.dict", more=ENTRIES))


def test_words_are_read_as_they_are_spoken_first(words: dict[str, str]) -> None:
    assert words["about"] == "əbaʊt"
    assert words["butter"] == "bʌtɚ"
    assert words["church"] == "tʃɝtʃ"
    assert words["don't"] == "doʊnt"
    assert not {"butter(2)", "a.d."} & words.keys()


def test_what_is_no_dictionary_is_refused_in_one_line(tmp_path: Path) -> None:
    path = tmp_path / "words.dict"
    with pytest.raises(SpeccompileError, match=r"\A.*words.dict: not readable as a dictionary.*\Z"):
        read_dictionary(path)
    path.write_text(ENTRIES, encoding="utf-8")
    with pytest.raises(SpeccompileError, match=r"\A.*has 4 words.*lines like `cat K AE1 T`\Z"):
        read_dictionary(path)
    path.write_text("xyz X QQ Z\n", encoding="utf-8")
    with pytest.raises(SpeccompileError, match="has 0 words"):
        read_dictionary(path)


def test_a_word_is_held_out_wherever_else_words_are(words: dict[str, str]) -> None:
    known, held_out = split_words(words, 0.2)
    assert known | held_out == words
    assert not known.keys() & held_out.keys()
    assert 0.1 < len(held_out) / len(words) < 0.3
    fewer = dict(list(words.items())[::2])
    assert split_words(fewer, 0.2)[1].keys() == held_out.keys() & fewer.keys()


def test_every_word_comes_once_before_one_comes_again(words: dict[str, str]) -> None:
    pairs = list(islice(sentences(words, 0), 400))
    assert pairs == list(islice(sentences(words, 0), 400))
    assert pairs != list(islice(sentences(words, 1), 400))
    said = [word for pair in pairs for word in pair.source.split()]
    assert sorted(said[: len(words)]) == sorted(words)
    for pair in pairs:
        assert pair.answer.split() == [words[word] for word in pair.source.split()]
    assert {len(pair.source.split()) for pair in pairs} == set(range(1, 9))
    long = islice(sentences(words, 0, fewest=4), 100)
    assert {len(pair.source.split()) for pair in long} == set(range(4, 9))
