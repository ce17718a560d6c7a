"""Text, tokens and logprobs of an output end at one place, wherever the rounds' blocks end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from speccompile.runtime.options import Options
from speccompile.runtime.output import Output
from speccompile.runtime.runner import Runner
from speccompile.runtime.session import Finish
from tests.table_artifact import CONTEXT, TARGET, give_tables, write_artifact
from tests.unit.runtime.tables import greedy_ids

PROMPT = [4, 7, 2]
COUNT = 24
# A penalty lets the output wander through all tokens.
OPTIONS = Options(COUNT, presence_penalty=1.0, frequency_penalty=1.0, logprobs=3)


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runner:
    give_tables(monkeypatch)
    return Runner.open(write_artifact(tmp_path / "tiny", {}), on="cpu")


def generate(
    runner: Runner, options: Options, draft: str = "none", prompt: Sequence[int] = PROMPT
) -> Output:
    session = runner.session(draft, adaptive=False)
    (output,) = runner.outputs(session, prompt, options)
    assert "".join(output) == output.text
    assert runner.tokenizer.decode([*prompt, *output.tokens]) == (
        runner.tokenizer.decode(list(prompt)) + output.text.rstrip()
    )
    assert [entry.token for entry in output.logprobs] == output.tokens
    return output


@pytest.mark.parametrize("draft", ["none", "model", "ngram", "union"])
def test_a_stop_text_cuts_everything_in_one_place(runner: Runner, draft: str) -> None:
    """Of two tokens, anywhere in an accepted block."""
    whole = generate(runner, OPTIONS)
    assert whole.finish is Finish.LENGTH
    assert len(whole.tokens) == COUNT
    pairs = list(zip(whole.tokens, whole.tokens[1:], strict=False))
    for length in (1, 3, 5):
        for first, second in set(pairs):
            stop = f"w{first} w{second}"
            options = replace(OPTIONS, stop=["w1 w1 w1 w1", stop], draft_length=length)
            output = generate(runner, options, draft)
            assert output.tokens == whole.tokens[: pairs.index((first, second))]
            assert output.finish is Finish.STOP
            assert stop not in output.text


@pytest.mark.parametrize("draft", ["none", "model"])
def test_a_stop_token_of_any_place_in_a_block_ends_the_output(runner: Runner, draft: str) -> None:
    whole = generate(runner, OPTIONS)
    for token in set(whole.tokens):
        options = replace(OPTIONS, stop_tokens=[token], draft_length=5)
        output = generate(runner, options, draft)
        assert output.tokens == whole.tokens[: whole.tokens.index(token)]
        assert output.finish is Finish.STOP


@pytest.mark.parametrize("draft", ["none", "model"])
def test_what_comes_first_ends_it_the_stop_or_the_length(runner: Runner, draft: str) -> None:
    whole = generate(runner, OPTIONS)
    place = next(at for at in range(3, COUNT) if whole.tokens[at] not in whole.tokens[:at])
    for most in range(place + 4):
        for stop in ({"stop": [f"w{whole.tokens[place]}"]}, {"stop_tokens": [whole.tokens[place]]}):
            options = replace(OPTIONS, max_new_tokens=most, draft_length=6, **stop)
            output = generate(runner, options, draft)
            assert output.tokens == whole.tokens[: min(place, most)]
            assert output.finish is (Finish.STOP if most > place else Finish.LENGTH), most


@pytest.mark.parametrize("draft", ["none", "model"])
def test_no_end_counts_before_the_least_length(runner: Runner, draft: str) -> None:
    whole = generate(runner, OPTIONS)
    often = max(set(whole.tokens), key=whole.tokens.count)
    for least in range(COUNT):
        options = replace(OPTIONS, stop=[f"w{often}"], min_new_tokens=least, draft_length=4)
        expected = next((at for at in range(least, COUNT) if whole.tokens[at] == often), COUNT)
        assert generate(runner, options, draft).tokens == whole.tokens[:expected]


@pytest.mark.parametrize("draft", ["none", "model", "ngram"])
def test_a_prompt_up_to_the_context_is_answered_as_far_as_there_is_room(
    runner: Runner, draft: str
) -> None:
    for room in range(7):
        prompt = [token % 8 for token in range(CONTEXT - room)]
        output = generate(runner, Options(draft_length=5, logprobs=0), draft, prompt)
        assert output.finish is Finish.LENGTH
        assert len(output.tokens) == room


@pytest.mark.parametrize("draft", ["none", "model", "ngram"])
def test_logprobs_are_those_of_one_pass_over_the_text(runner: Runner, draft: str) -> None:
    for sampled in (OPTIONS, replace(OPTIONS, temperature=1.0, seed=3, draft_length=4)):
        output = generate(runner, sampled, draft)
        assert len(output.logprobs) == COUNT
        tokens = [*PROMPT, *output.tokens]
        for at, entry in enumerate(output.logprobs, start=len(PROMPT)):
            row = TARGET[tokens[at - 2], tokens[at - 1]].astype(np.float64)
            expected = row - np.log(np.exp(row).sum())
            assert entry.logprob == pytest.approx(expected[tokens[at]], abs=1e-6)
            best = sorted(range(len(row)), key=lambda token: -row[token])[:3]
            assert [token for token, _ in entry.top] == best
            assert [value for _, value in entry.top] == pytest.approx(expected[best], abs=1e-6)


def test_outputs_of_one_prompt_differ_and_are_repeated(runner: Runner) -> None:
    options = Options(COUNT, temperature=1.0, seed=5, audited=True, n=3)
    found = list[list[list[int]]]()
    for draft in ("none", "model"):
        outputs = list[list[int]]()
        for output in runner.outputs(runner.session(draft), PROMPT, options):
            list(output)
            outputs.append(output.tokens)
        found.append(outputs)
    assert found[0] == found[1]
    assert len({tuple(tokens) for tokens in found[0]}) == 3
    (single,) = runner.outputs(runner.session("none"), PROMPT, replace(options, n=1))
    list(single)
    assert single.tokens == found[0][0]


def test_statistics_stay_those_of_their_output(runner: Runner) -> None:
    session = runner.session("model", adaptive=False)
    options = Options(COUNT, temperature=1.0, n=2, draft_length=3)
    first, second = runner.outputs(session, PROMPT, options)
    assert len(list(first)) > 0
    rounds = first.statistics.rounds
    assert len(list(second)) > 0
    assert first.statistics.rounds == rounds
    assert first.statistics is not second.statistics
    assert second.statistics.reused_tokens == len(PROMPT) - 1


def test_greedy_tokens_are_the_tables(runner: Runner) -> None:
    assert generate(runner, Options(COUNT, logprobs=0)).tokens == greedy_ids(TARGET, PROMPT, COUNT)


def test_an_output_that_is_left_says_what_was_yielded(runner: Runner) -> None:
    (output,) = runner.outputs(runner.session("none"), PROMPT, OPTIONS)
    pieces = iter(output)
    text = next(pieces) + next(pieces)
    assert output.text == text
    assert len(output.tokens) == len(output.logprobs) == 2
