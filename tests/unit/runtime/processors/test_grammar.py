"""Whatever the logits are, the text is one of the grammar's; on every branch of a tree."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from speccompile.runtime.errors import RequestError
from speccompile.runtime.processors.grammar import Grammar, Grammars

PROMPT = [5, 6, 7]  # any: a grammar begins behind it
KINDS = ["cat", "dog", "\N{SLIGHTLY SMILING FACE}"]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 4},
        "kind": {"enum": KINDS},
        "ages": {"type": "array", "items": {"type": "integer"}, "maxItems": 3},
    },
    "required": ["name", "kind", "ages"],
    "additionalProperties": False,
    "x-guidance": {"whitespace_flexible": False},
}
REGEX = r"(cat|dog)s?( and [a-f]{2,5})*\."
LARK = 'start: sum "="\nsum: NUMBER ("+" sum)?\nNUMBER: /[1-9][0-9]?/'


def _tokenizer() -> Tokenizer:
    """Bytes, some words and parts of them, and two special tokens that end a text."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("c", "a"), ("ca", "t"), ("d", "o"), ("do", "g"), ('"', ":"), ('":', '"'), ("a", "n")]
    words = [*alphabet, *(first + second for first, second in merges)]
    tokenizer = Tokenizer(models.BPE({word: id for id, word in enumerate(words)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>", "<turn>", "<other>"])
    return tokenizer


TOKENIZER = _tokenizer()
VOCABULARY = TOKENIZER.get_vocab_size() + 3  # ids without a token
STOP = {TOKENIZER.get_vocab()["<end>"], TOKENIZER.get_vocab()["<turn>"]}
GRAMMARS = Grammars(TOKENIZER, VOCABULARY, STOP)


def _json_schema() -> Grammar:
    return GRAMMARS.json_schema(SCHEMA, len(PROMPT))


def _regex() -> Grammar:
    return GRAMMARS.regex(REGEX, len(PROMPT))


def _lark() -> Grammar:
    return GRAMMARS.lark(LARK, len(PROMPT))


MAKERS = [_json_schema, _regex, _lark]


def _allowed(grammar: Grammar, output: Sequence[int]) -> set[int]:
    row = np.zeros(VOCABULARY, np.float32)
    grammar.apply(row, [*PROMPT, *output])
    return set(np.flatnonzero(np.isfinite(row)).tolist())


def _generate(grammar: Grammar, random: np.random.Generator) -> str:
    """Text by random logits, a little in favour of an end, so that there is one."""
    output: list[int] = []
    while len(output) < 400:
        row: NDArray[np.float32] = random.normal(size=VOCABULARY).astype(np.float32)
        row[list(STOP)] += 1.0
        grammar.apply(row, [*PROMPT, *output])
        token = int(row.argmax())
        if token in STOP:
            return TOKENIZER.decode(output)
        output.append(token)
    pytest.fail(f"no end in {TOKENIZER.decode(output)!r}")


@pytest.mark.parametrize("seed", range(20))
def test_random_logits_give_json_of_the_schema(seed: int) -> None:
    value = json.loads(_generate(_json_schema(), np.random.default_rng(seed)))
    assert set(value) == {"name", "kind", "ages"}
    assert isinstance(value["name"], str)
    assert len(value["name"]) <= 4
    assert value["kind"] in KINDS
    assert all(isinstance(age, int) for age in value["ages"])


@pytest.mark.parametrize("seed", range(20))
def test_random_logits_give_what_the_expression_matches(seed: int) -> None:
    assert re.fullmatch(REGEX, _generate(_regex(), np.random.default_rng(seed)))


@pytest.mark.parametrize("seed", range(20))
def test_random_logits_give_what_the_rules_derive(seed: int) -> None:
    text = _generate(_lark(), np.random.default_rng(seed))
    assert re.fullmatch(r"[1-9][0-9]?(\+[1-9][0-9]?)*=", text)


def test_every_way_to_write_a_text_in_tokens_is_allowed() -> None:
    cat = TOKENIZER.encode("cat").ids[0]
    assert {cat, *TOKENIZER.encode("c").ids, *TOKENIZER.encode("ca").ids} <= _allowed(_regex(), [])
    assert _allowed(_regex(), [cat]) == _allowed(_regex(), [*map(_byte, "cat")])


def _byte(character: str) -> int:
    return TOKENIZER.encode(character).ids[0]


def test_complete_text_can_only_end() -> None:
    assert _allowed(_regex(), TOKENIZER.encode("cats.").ids) == STOP


def test_text_that_may_end_or_go_on_may_do_both() -> None:
    grammar = GRAMMARS.regex("ab?", len(PROMPT))
    assert _allowed(grammar, [_byte("a")]) == {_byte("b"), *STOP}


@pytest.mark.parametrize("end", sorted(STOP))
def test_nothing_but_an_end_follows_an_end(end: int) -> None:
    grammar = GRAMMARS.regex("ab?", len(PROMPT))
    assert _allowed(grammar, [_byte("a"), end]) == STOP
    assert _allowed(grammar, [_byte("a"), end, _byte("b")]) == STOP
    assert _allowed(grammar, [_byte("a")]) == {_byte("b"), *STOP}


def test_a_branch_that_nothing_leads_to_does_no_harm() -> None:
    grammar = _regex()
    assert _allowed(grammar, [*map(_byte, "cax")]) == STOP
    assert _allowed(grammar, [*map(_byte, "caxt")]) == STOP
    assert _allowed(grammar, [*map(_byte, "cax")]) == STOP
    assert _allowed(grammar, [*map(_byte, "ca")]) == {_byte("t")}


_BRANCHES = {
    make: [list(TOKENIZER.encode(text).ids) for text in texts]
    for make, texts in [
        (_json_schema, ('{"name":"cat","kind":"dog","ages":[1,23]}', '{"name":"d","kind":"cat"')),
        (_regex, ("cats and ab and cde.", "dog and an and caf.")),
        (_lark, ("12+3+45=", "7=")),
    ]
}


@settings(max_examples=60, derandomize=True, deadline=None)
@given(st.data())
@pytest.mark.parametrize("make", MAKERS)
def test_branches_in_any_order_have_the_masks_of_new_grammars(
    make: Callable[[], Grammar], data: st.DataObject
) -> None:
    grammar = make()
    wrong = st.lists(st.sampled_from([*STOP, _byte("a"), _byte("1"), _byte("=")]), max_size=2)
    for _ in range(data.draw(st.integers(2, 6))):
        text = data.draw(st.sampled_from(_BRANCHES[make]))
        output = text[: data.draw(st.integers(0, len(text)))] + data.draw(wrong)
        assert _allowed(grammar, output) == _allowed(make(), output)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: GRAMMARS.regex("(a", 0),
            'regex: at 1(8): invalid regex "(a" (in regex): regex parse error: '
            "error: unclosed group; correct or simplify it",
        ),
        (
            lambda: GRAMMARS.lark("start: nothing", 0),
            'lark: at 1(8): unknown name: "nothing"; correct or simplify it',
        ),
        (
            lambda: GRAMMARS.json_schema({"type": "strin"}, 0),
            "json_schema: Invalid type: strin; correct or simplify it",
        ),
        (
            lambda: GRAMMARS.json_schema({"type": "array", "uniqueItems": True}, 0),
            'json_schema: Unimplemented keys: ["uniqueItems"]; correct or simplify it',
        ),
        (
            lambda: GRAMMARS.json_schema("{]", 0),
            "json_schema is not JSON: Expecting property name enclosed in double quotes: "
            "line 1 column 2 (char 1)",
        ),
        (
            lambda: Grammars(TOKENIZER, VOCABULARY, ()),
            "a grammar needs a stop token to end with; name one",
        ),
        (
            lambda: Grammars(TOKENIZER, VOCABULARY, {VOCABULARY}),
            f"stop_tokens names token {VOCABULARY}; tokens are from 0 to {VOCABULARY - 1}",
        ),
        (
            lambda: Grammars(Tokenizer(models.WordLevel({"a": 0}, "a")), 1, {0}),
            "grammars cannot use this tokenizer: can't determine decoder type: None",
        ),
    ],
)
def test_a_mistake_is_one_line(make: Callable[[], object], message: str) -> None:
    with pytest.raises(RequestError) as caught:
        make()
    assert str(caught.value) == message


@pytest.mark.parametrize(
    "make",
    [
        lambda: GRAMMARS.regex("(" * 50_000, 0),
        lambda: GRAMMARS.lark("start: " + "(" * 50_000, 0),
        lambda: GRAMMARS.json_schema('{"not":' * 50_000 + "{}" + "}" * 50_000, 0),
        lambda: GRAMMARS.json_schema('{"items":' * 400 + "{}" + "}" * 400, 0),
    ],
)
def test_a_grammar_too_deep_is_refused_in_a_short_line(make: Callable[[], Grammar]) -> None:
    with pytest.raises(RequestError) as caught:
        make()
    assert len(str(caught.value)) < 300
    assert "\n" not in str(caught.value)


def test_what_a_matcher_cannot_follow_is_an_error_not_an_end() -> None:
    grammar = GRAMMARS.regex(r"(.*a.{0,200}){0,40}b(.*c.{0,200}){0,40}", len(PROMPT))
    text = TOKENIZER.encode("acb" * 40).ids

    def follow() -> None:
        for length in range(len(text)):
            _allowed(grammar, text[:length])

    with pytest.raises(RequestError, match=r"^the grammar: .*; simplify it$"):
        follow()


def test_without_llguidance_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "llguidance", None)
    with pytest.raises(RequestError, match=r"pip install 'speccompile\[grammar\]'"):
        Grammars(TOKENIZER, VOCABULARY, STOP)
