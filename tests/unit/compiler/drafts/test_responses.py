from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from speccompile.compiler.drafts.responses import LIKELIEST, Response, respond
from speccompile.compiler.drafts.shards import BATCH, Shards
from tests.unit.compiler.drafts.tiny import ENDS, PROMPTS, answers, decoder_of


def same(left: Response, right: Response) -> bool:
    return bool(np.array_equal(left.tokens, right.tokens))


def test_a_greedy_answer_is_what_the_model_thinks_most_likely() -> None:
    decoder = decoder_of()
    for response in answers():
        with torch.inference_mode():
            hidden = decoder.hidden(torch.from_numpy(response.text[None].astype(np.int64)))
            law = decoder.logits(hidden)[0].softmax(-1)[len(response.prompt) - 1 : -1]
        assert response.tokens.tolist() == law.argmax(-1).tolist()
        probabilities, likeliest = law.topk(LIKELIEST)
        assert response.likeliest.tolist() == likeliest.tolist()
        np.testing.assert_allclose(response.probabilities, probabilities, atol=2e-3)


def test_an_answer_ends_with_an_end_or_at_its_length() -> None:
    ended = [response for response in answers() if response.tokens[-1] in ENDS]
    for response in answers():
        assert not set(response.tokens[:-1].tolist()) & set(ENDS)
        assert len(response.tokens) == 20 or response in ended
    # One that ends earlier than the others leaves the batch, and changes nothing for them.
    end = int(answers()[0].tokens[4])
    again = respond(decoder_of(), PROMPTS, [0.0] * 24, length=20, ends=[end], seed=0)
    assert len(again[0].tokens) <= 5
    for response, before in zip(again, answers(), strict=True):
        assert response.tokens.tolist() == before.tokens[: len(response.tokens)].tolist()


def test_nobody_changes_another_ones_answer() -> None:
    alone = [
        respond(decoder_of(), [prompt], [0.0], length=20, ends=ENDS, seed=3)[0]
        for prompt in PROMPTS[:5]
    ]
    assert all(map(same, alone, answers()))


def test_drawn_answers_follow_the_seed() -> None:
    def drawn(seed: int) -> list[Response]:
        return respond(decoder_of(), PROMPTS, [1.5] * 24, length=20, ends=ENDS, seed=seed)

    assert all(map(same, drawn(1), drawn(1)))
    assert not all(map(same, drawn(1), drawn(2)))
    assert not all(map(same, drawn(1), answers()))


def test_what_is_answered_is_kept_and_the_rest_made_again(tmp_path: Path) -> None:
    prompts = [PROMPTS[number % 24] for number in range(BATCH + 8)]
    shards = Shards(tmp_path, "a target", prompts, 4, seed=5)
    told: list[tuple[int, int]] = []
    said = shards.generate(decoder_of(), ENDS, lambda done, tokens: told.append((done, tokens)))
    first = shards.read()
    assert told[-1] == (2, said)
    assert said == sum(len(response.tokens) for response in first)
    assert sorted(response.prompt.tolist() for response in first) == sorted(prompts)
    sizes = {path: path.read_bytes() for path in tmp_path.iterdir()}
    [lost, _] = sizes
    lost.unlink()
    shards.generate(decoder_of(), ENDS, lambda done, tokens: None)
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == sizes


def test_more_prompts_behind_them_leave_whole_blocks_as_they_are(tmp_path: Path) -> None:
    prompts = [[2 + number % 30, 2 + number // 30 % 30, number // 900] for number in range(1600)]
    few = Shards(tmp_path, "a target", prompts[:1536], 4, seed=5)
    more = Shards(tmp_path, "a target", prompts, 4, seed=5)
    assert more.names[: few.count] == few.names
    assert not set(few.names) & set(Shards(tmp_path, "another", prompts, 4, seed=5).names)
