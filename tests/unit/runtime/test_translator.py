"""Every option does something, and the same whoever drafts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from speccompile.runtime.drafting.draft import Draft
from speccompile.runtime.drafting.ensemble import Union
from speccompile.runtime.drafting.model import ModelDraft
from speccompile.runtime.drafting.ngram import NgramDraft
from speccompile.runtime.drafting.suffix import SuffixDraft
from speccompile.runtime.errors import RequestError
from speccompile.runtime.options import Options
from speccompile.runtime.session import Finish, Session
from speccompile.runtime.translator import Translator
from tests.unit.runtime.tables import VOCABULARY, TableEngine, make_table, near_table

TARGET = make_table(1)
DRAFT = near_table(TARGET, 2)
PROMPT = [1, 2, 3, 1, 2]
END = 7


def _tokenizer() -> Tokenizer:
    """Seven tokens of one or two letters, and one that ends a text."""
    words = ["a", "b", "c", "\u0120", "ab", "\u0120c", "ca"]
    merges = [("a", "b"), ("\u0120", "c"), ("c", "a")]
    tokenizer = Tokenizer(models.BPE({word: id for id, word in enumerate(words)}, merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<end>"])
    return tokenizer


TOKENIZER = _tokenizer()
TRANSLATOR = Translator(TOKENIZER, VOCABULARY, {END})

DRAFTS: dict[str, Callable[[], Draft]] = {
    "model": lambda: ModelDraft(TableEngine(DRAFT)),
    "ngram": NgramDraft,
    "union": lambda: Union([SuffixDraft()], [ModelDraft(TableEngine(DRAFT))]),
}
GREEDY = Options(max_new_tokens=40)
SAMPLED = Options(max_new_tokens=40, temperature=1.0, seed=23, audited=True)
PROCESSED: dict[str, dict[str, Any]] = {
    "min_new_tokens": {"min_new_tokens": 30, "stop_tokens": [3, 5]},
    "repetition_penalty": {"repetition_penalty": 1.5},
    "presence_penalty": {"presence_penalty": 1.5},
    "frequency_penalty": {"frequency_penalty": 0.7},
    "logit_bias by id": {"logit_bias": {4: 3.0}},
    "logit_bias by text": {"logit_bias": {"ab": 3.0, " ": -100.0}},
    "bad_words": {"bad_words": ["c", "ca", "b"]},
    "regex": {"regex": "(ab|ca)+c? ?"},
    "grammar": {"grammar": 'start: ("a" | "b" " "? "c")+'},
    "all": {
        "min_new_tokens": 12,
        "repetition_penalty": 1.2,
        "presence_penalty": 0.5,
        "frequency_penalty": 0.5,
        "logit_bias": {1: 1.0},
        "bad_words": ["ca"],
        "regex": "[abc ]+",
        "stop_tokens": [END],
    },
}
FILTERS: dict[str, dict[str, Any]] = {
    "top_k": {"top_k": 2},
    "top_p": {"top_p": 0.5},
    "min_p": {"min_p": 0.5},
    "temperature": {"temperature": 2.0},
    "seed": {"seed": 8},
}


def _generate(options: Options, draft: str | None = None, length: int = 4) -> list[int]:
    request = TRANSLATOR.request(replace(options, draft_length=length), PROMPT)
    session = Session(TableEngine(TARGET), DRAFTS[draft]() if draft else None)
    return list(session.generate(PROMPT, request))


CASES = [
    *(pytest.param(GREEDY, given, id=f"greedy {name}") for name, given in PROCESSED.items()),
    *(
        pytest.param(SAMPLED, given, id=f"sampled {name}")
        for name, given in (PROCESSED | FILTERS).items()
    ),
]


@pytest.mark.parametrize(("usual", "given"), CASES)
def test_an_option_changes_the_output_and_no_draft_does(
    usual: Options, given: dict[str, Any]
) -> None:
    options = replace(usual, **given)
    plain = _generate(options)
    assert plain != _generate(usual)
    for draft in DRAFTS:
        for length in (1, 2, 5):
            assert _generate(options, draft, length) == plain, (draft, length)


def test_the_output_ends_where_the_grammar_does_whatever_is_drawn() -> None:
    """Drawn proposals, too, and those behind which nothing may follow."""
    options = Options(40, temperature=1.5, regex="(ab|ca) ?c", seed=0)
    texts = set[str]()
    for seed in range(40):
        request = TRANSLATOR.request(replace(options, seed=seed), PROMPT)
        session = Session(TableEngine(TARGET), DRAFTS["model"]())
        texts.add(TOKENIZER.decode(list(session.generate(PROMPT, request))))
        assert session.finish is Finish.STOP
    assert len(texts) > 1
    assert texts <= {"abc", "ab c", "cac", "ca c"}


@pytest.mark.parametrize("draft", [None, *DRAFTS])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_constraints_that_leave_nothing_are_refused_with_any_draft(
    draft: str | None, temperature: float
) -> None:
    """The grammar is at its end before the output may be."""
    options = Options(40, min_new_tokens=5, temperature=temperature, regex="ab ?c")
    with pytest.raises(RequestError, match="every token is forbidden here; loosen"):
        _generate(options, draft)


@pytest.mark.parametrize("audited", [True, False])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_draft_may_get_where_all_is_forbidden_and_the_output_does_not(
    temperature: float, audited: bool
) -> None:
    """The draft likes "b", behind which the grammar ends too early; the target never says it."""
    target, draft = TARGET.copy(), TARGET.copy()
    ends = [1, 4]  # "b" and "ab"
    target[..., ends], draft[..., ends] = -200.0, 4.0
    options = Options(
        12, min_new_tokens=10, temperature=temperature, audited=audited, regex="a*(b|c{20})"
    )
    for seed in range(10):
        request = TRANSLATOR.request(replace(options, seed=seed, draft_length=5), PROMPT)
        session = Session(TableEngine(target), ModelDraft(TableEngine(draft)))
        ids = list(session.generate(PROMPT, request))
        assert len(ids) == 12
        assert not {*ends, END} & set(ids)
        assert sum(session.statistics.proposed)


def test_processors_come_in_the_order_of_the_documents() -> None:
    options = replace(GREEDY, **PROCESSED["all"])
    names = [type(each).__name__ for each in TRANSLATOR.request(options, PROMPT).processors]
    assert names == [
        *("RepetitionPenalty", "OutputPenalty", "LogitBias", "BadWords", "MinNewTokens", "Grammar")
    ]
    assert TRANSLATOR.request(GREEDY, PROMPT).processors == ()


def test_a_bad_word_is_forbidden_with_a_space_before_it_and_without() -> None:
    (words,) = TRANSLATOR.request(Options(bad_words=["c"]), PROMPT).processors
    row = np.zeros(VOCABULARY, np.float32)
    words.apply(row, PROMPT)
    assert np.flatnonzero(np.isneginf(row)).tolist() == [2, 5]


def test_stop_tokens_are_the_models_and_the_callers() -> None:
    request = TRANSLATOR.request(Options(stop_tokens=[3]), PROMPT)
    assert request.stop_tokens == {3, END}


def test_without_a_seed_every_request_has_its_own() -> None:
    options = Options(temperature=1.0)
    seeds = {TRANSLATOR.request(options, PROMPT).sampling.seed for _ in range(8)}
    assert len(seeds) > 1
    assert TRANSLATOR.request(replace(options, seed=0), PROMPT).sampling.seed == 0


def test_a_vocabulary_is_read_once_for_the_same_stop_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = list[object]()

    class Counted:
        def __init__(self, *arguments: object) -> None:
            made.append(arguments)

        def regex(self, pattern: str, prompt_length: int) -> object:
            return object()

    monkeypatch.setattr("speccompile.runtime.translator.Grammars", Counted)
    translator = Translator(TOKENIZER, VOCABULARY, {END})
    for stop, count in (([], 1), ([], 1), ([3], 2), ([3], 2)):
        translator.request(Options(regex="a", stop_tokens=stop), PROMPT)
        assert len(made) == count


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stop_tokens": [8]}, "stop_tokens names token 8; tokens are from 0 to 7"),
        ({"logit_bias": {8: 1.0}}, "logit_bias names token 8"),
        ({"logit_bias": {1: 101.0}}, "logit_bias of token 1 is 101.0; it must be from -100 to 100"),
        ({"logit_bias": {1: 1.0, "b": 2.0}}, "logit_bias names token 1 twice; leave one out"),
        ({"logit_bias": {"ba": 1.0}}, r"'ba' is 2 tokens \[1, 0\]; name one token, or its id"),
        ({"regex": "("}, "regex: "),
        ({"json_schema": "{"}, "json_schema is not JSON"),
        ({"grammar": "begin: a"}, "lark: "),
    ],
)
def test_what_this_model_cannot_do_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(RequestError, match=message) as caught:
        TRANSLATOR.request(Options(**given), PROMPT)
    assert "\n" not in str(caught.value)
