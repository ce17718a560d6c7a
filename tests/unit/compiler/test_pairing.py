"""Tokenizers that differ are told apart, and the first difference is named."""

from __future__ import annotations

import json

import pytest
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

from speccompile.compiler.pairing import PairError, Vocabulary, check_same_tokens

PROBE = "ab 12\nabc\n"
MERGES = [("a", "b"), ("b", "c"), ("ab", "c")]


def _vocabulary(
    *,
    merges: list[tuple[str, str]] = MERGES,
    tokens: str = "abc12\u0120\u010a",
    longer: tuple[str, ...] = ("ab", "bc", "abc"),
    special: str = "<s>",
    digits: bool = False,
    rows: int = 16,
    **files: str | None,
) -> Vocabulary:
    words = [*tokens, *longer]
    tokenizer = Tokenizer(BPE({word: index for index, word in enumerate(words)}, merges))
    split = ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), split]) if digits else split
    tokenizer.add_special_tokens([AddedToken(special)])
    ids = {"bos_token": "<s>", "eos_token": "<s>", "chat_template": None}
    return Vocabulary("here", {"tokenizer_json": tokenizer.to_str(), **ids, **files}, rows)


def test_a_tokenizer_equals_itself_however_padded() -> None:
    padded = _vocabulary(rows=32)
    assert check_same_tokens(_vocabulary(), padded, PROBE) == []
    check_same_tokens(padded, _vocabulary(), PROBE)
    assert padded.used == _vocabulary().used == 11
    assert _vocabulary(rows=9).used == 9  # a tokenizer may know more than the model has rows for


def test_merges_as_text_and_as_pairs_are_the_same() -> None:
    content = json.loads(_vocabulary().files["tokenizer_json"])
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    old = _vocabulary(tokenizer_json=json.dumps(content))
    check_same_tokens(_vocabulary(), old, PROBE)


@pytest.mark.parametrize(
    ("draft", "difference"),
    [
        (_vocabulary(tokens="acb12\u0120\u010a"), "token 1 is 'b' to the target and 'c'"),
        (_vocabulary(special="<end>"), "token 10 is '<s>' to the target and '<end>'"),
        (_vocabulary(merges=[MERGES[1], MERGES[0], MERGES[2]]), r"merge 0 is .*'a'.* and .*'b'"),
        (_vocabulary(merges=MERGES[:2]), "merge 2 is .* to the target and None"),
        (_vocabulary(eos_token="ab"), "eos_token is '<s>' to the target and 'ab'"),
        (_vocabulary(bos_token=None), "bos_token is '<s>' to the target and None"),
    ],
)
def test_the_first_difference_is_named(draft: Vocabulary, difference: str) -> None:
    with pytest.raises(PairError, match=rf"\A{difference}.*; choose a draft with the target's"):
        check_same_tokens(_vocabulary(), draft, PROBE)


def test_templates_that_differ_are_named_by_line_as_a_warning() -> None:
    shared = "x" * 90
    ours = _vocabulary(chat_template=f"a\n{shared}one")
    theirs = _vocabulary(chat_template=f"a\n{shared}two")
    (warning,) = check_same_tokens(ours, theirs, PROBE)
    assert warning == (
        "line 2 of the chat template is 'xxxxxxxxxxxxxxxxxxxxone' to the target and "
        "'xxxxxxxxxxxxxxxxxxxxtwo' to the draft; the target's is used"
    )
    # A base model has none.
    assert check_same_tokens(ours, _vocabulary(), PROBE) == []


def test_splitting_that_differs_is_found_on_text() -> None:
    def numbers(digits: bool) -> Vocabulary:
        return _vocabulary(longer=("12",), merges=[("1", "2")], digits=digits)

    with pytest.raises(PairError, match=r"split 'ab 12\\n' differently"):
        check_same_tokens(numbers(False), numbers(True), PROBE)
