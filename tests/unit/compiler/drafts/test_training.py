from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
import torch

from speccompile.compiler.drafts.lesson import lessons, loss_of
from speccompile.compiler.drafts.student import Student, default_layers
from speccompile.compiler.drafts.training import Schedule, Trainer, stands
from speccompile.runtime.errors import SpeccompileError
from tests.families import tiny
from tests.unit.compiler.drafts.tiny import VOCABULARY, answers

TARGET = tiny("llama-tied")
ALL = torch.arange(VOCABULARY)


def student(layers: tuple[int, ...] = (1,), vocabulary: torch.Tensor = ALL) -> Student:
    return Student.of(TARGET.config, TARGET.read, layers, vocabulary)


def trainer(folder: Path, *, rate: float = 3e-3, tokens: int = 20_000) -> Trainer:
    schedule = Schedule(tokens, room=256, rate=rate)
    return Trainer(student(), answers(), answers()[:8], schedule, folder)


def never(trainer: Trainer) -> None:
    """No progress."""


def test_layers_are_the_first_and_every_second_of_the_last() -> None:
    assert default_layers(4, 30) == (0, 1, 27, 29)
    assert default_layers(3, 12) == (0, 1, 11)
    assert default_layers(1, 5) == (0,)
    for count in range(1, 13):
        chosen = default_layers(count, 12)
        assert list(chosen) == sorted(set(chosen))
        assert len(chosen) == count
        assert 0 <= min(chosen) <= max(chosen) < 12
    with pytest.raises(
        SpeccompileError, match=r"distil\.count is 13, but the target has 12 layers"
    ):
        default_layers(13, 12)


def test_a_layer_that_is_not_there_is_refused() -> None:
    with pytest.raises(SpeccompileError, match="has 2, but the target's are 0 to 1"):
        student((0, 2))


def test_all_layers_are_the_target_and_need_no_lesson() -> None:
    whole = student((0, 1))
    [lesson] = lessons(answers()[:6], ALL, VOCABULARY, 1 << 20, 0)
    with torch.no_grad():
        logits = whole.logits(lesson)
        loss = loss_of(logits, lesson)
    best = (logits.argmax(-1) == lesson.said).float().mean()
    assert best > 0.9  # in bfloat16
    assert float(loss.overlap) == pytest.approx(float(lesson.probabilities.sum(1).mean()), abs=0.05)
    assert loss.overlap > loss_of(logits.roll(1, 0), lesson).overlap + 0.2


def test_a_token_that_the_student_lacks_is_never_right() -> None:
    said = {token for response in answers() for token in response.tokens.tolist()}
    kept = torch.tensor([token for token in range(VOCABULARY) if token not in said])
    [lesson] = lessons(answers(), kept, VOCABULARY, 1 << 20, 0)
    assert (lesson.said == -1).all()
    assert stands(student((1,), kept), answers()).tokens_a_round == 1.0


def test_every_response_is_read_once_in_another_order_each_time() -> None:
    def read(seed: int) -> list[list[int]]:
        found = lessons(answers(), ALL, VOCABULARY, 128, seed)
        return [row.tolist() for lesson in found for row in lesson.tokens]

    assert len(read(0)) == len(answers())
    assert read(0) == read(0)
    assert read(0) != read(1)
    for lesson in lessons(answers(), ALL, VOCABULARY, 128, 0):
        assert lesson.tokens.numel() <= 128
        assert int(lesson.rows.sum()) == len(lesson.said) == len(lesson.likeliest)


def test_it_learns(tmp_path: Path) -> None:
    learning = trainer(tmp_path)
    before = stands(learning.student, answers()).tokens_a_round
    assert learning.train(until=np.inf, points=4, report=never)
    after = stands(learning.student, answers())
    assert after.tokens_a_round > before + 0.5
    assert len(learning.curve) == 4
    assert learning.curve[-1].loss < learning.curve[0].loss
    assert learning.curve[-1].overlap > learning.curve[0].overlap


def test_stopped_anywhere_it_goes_on_to_the_same_end(tmp_path: Path) -> None:
    whole = trainer(tmp_path / "whole", tokens=4000)
    whole.train(until=np.inf, points=4, report=never)
    done, times = False, 0
    while not done:
        part = trainer(tmp_path / "part", tokens=4000)

        def stop(trainer: Trainer) -> None:
            raise KeyboardInterrupt

        done = part.train(until=time.monotonic() + 0.02, points=4, report=never)
        times += 1
        if not done and times % 2:
            lost = trainer(tmp_path / "part", tokens=4000)
            with pytest.raises(KeyboardInterrupt):
                lost.train(until=np.inf, points=4, report=stop)
    assert times > 1
    last = trainer(tmp_path / "part", tokens=4000)
    for name, value in whole.student.trained.items():
        assert torch.equal(value, last.student.trained[name])
    assert [(point.tokens, point.loss) for point in last.curve] == [
        (point.tokens, point.loss) for point in whole.curve
    ]


def test_what_diverges_stops_and_leaves_the_last_state(tmp_path: Path) -> None:
    good = trainer(tmp_path, tokens=100_000)
    good.train(until=time.monotonic() + 0.05, points=4, report=never)
    state = (tmp_path / "state.safetensors").read_bytes()
    bad = trainer(tmp_path, tokens=100_000)
    with torch.no_grad():
        next(iter(bad.student.trained.values())).fill_(torch.nan)
    with pytest.raises(SpeccompileError, match=r"diverged: the loss is nan after \d+ tokens"):
        bad.train(until=np.inf, points=4, report=never)
    assert (tmp_path / "state.safetensors").read_bytes() == state
