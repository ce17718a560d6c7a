from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from speccompile.compiler.decoder import is_norm, tensor_shapes
from speccompile.compiler.drafts.acceptance import DEPTH
from speccompile.compiler.drafts.lesson import Lesson, lessons
from speccompile.compiler.drafts.shared_student import SharedStudent, committed
from speccompile.compiler.drafts.training import Schedule, Trainer, stands
from tests.families import tiny
from tests.unit.compiler.drafts.tiny import VOCABULARY, answers, decoder_of

TARGET = tiny("llama-tied")
ALL = torch.arange(VOCABULARY)


def student(layers: tuple[int, ...] = (1,)) -> SharedStudent:
    return SharedStudent.sharing(decoder_of(), TARGET.read, layers, ALL)


def test_only_norms_are_trained_and_the_rest_is_the_targets() -> None:
    one = student()
    assert all(is_norm(name) for name in one.trained)
    assert len(one.trained) == 3
    matrix = "self_attn.q_proj.weight"
    shared = one.decoder.tensors[f"model.layers.0.{matrix}"]
    assert shared is decoder_of().tensors[f"model.layers.1.{matrix}"]
    norm = "model.layers.{}.input_layernorm.weight"
    np.testing.assert_array_equal(one.read(norm.format(0)), TARGET.read(norm.format(1)))


def test_norms_are_told_from_biases() -> None:
    norms = [name for name in tensor_shapes(tiny("gpt2").config) if is_norm(name)]
    assert len(norms) == 2 * (2 * 2 + 1)  # weights and biases
    assert "model.layers.1.self_attn.q_norm.weight" in filter(
        is_norm, tensor_shapes(tiny("qwen3").config)
    )
    assert not is_norm("model.layers.0.self_attn.q_proj.bias")


def test_rounds_begin_one_after_the_other() -> None:
    seen = committed(10, 2)
    read = seen.sum(1).tolist()  # before rows 0 and 1, whose round began before the text, nothing
    assert read == [0, 0, 2, 2, 2, 2, 6, 6, 6, 6]
    assert not (seen & ~torch.ones(10, 10).tril(-1).bool()).any()


def test_all_layers_in_the_targets_cache_are_the_target() -> None:
    """Whatever is read from whom: the keys and values are the same."""
    whole, few = student((0, 1)), answers()[:6]
    [lesson] = lessons(few, ALL, VOCABULARY, 1 << 20, 0)
    with torch.no_grad():
        shared = [whole.logits(lesson, step) for step in range(DEPTH)]
        apart = whole.apart.logits(lesson)
    for logits in shared:
        assert (logits - apart).abs().max() < 0.05 * apart.abs().max()  # bfloat16
    assert stands(whole, few).tokens_a_round > 0.8 * (DEPTH + 1)


def test_the_targets_cache_changes_what_a_layer_says() -> None:
    one = student()
    [lesson] = lessons(answers()[:6], ALL, VOCABULARY, 1 << 20, 0)
    with torch.no_grad():
        shared = one.logits(lesson)
        apart = one.apart.logits(lesson)
    assert (shared - apart).abs().max() > 0.1 * apart.abs().max()


def test_a_chain_is_what_the_rows_of_one_round_say() -> None:
    """Column d of `right` is of rows d behind a root, and no two passes say the same of a token."""
    one = student()
    [lesson] = lessons(answers()[3:4], ALL, VOCABULARY, 1 << 20, 0)
    right = one.right(lesson)
    assert right.shape == (len(lesson.said), DEPTH)
    first = int(torch.nonzero(lesson.rows)[0, 1])
    with torch.no_grad():
        for row in range(len(lesson.said)):
            for place in range(DEPTH):
                best = _drafted(one, lesson.tokens, first + row, place)
                assert right[row, place] == (best == int(lesson.said[row]))


def _drafted(one: SharedStudent, tokens: torch.Tensor, row: int, place: int) -> int:
    """What a row says that is the `place`-th of its round: of its text nothing follows it."""
    turn = (row - place) % DEPTH
    rows = torch.zeros(1, row + 1, dtype=torch.bool)
    rows[0, row] = True
    nothing = torch.empty(0)
    lesson = Lesson(tokens[:, : row + 1], rows, nothing, nothing, nothing)
    return int(one.logits(lesson, turn).argmax())


def test_norms_learn_and_matrices_stay(tmp_path: Path) -> None:
    one = student()
    matrices = {
        name: value.clone() for name, value in decoder_of().tensors.items() if not is_norm(name)
    }
    schedule = Schedule(30_000, room=256, rate=1e-2)
    trainer = Trainer(one, answers(), answers()[:8], schedule, tmp_path)
    before = stands(trainer.student, answers()).tokens_a_round
    assert trainer.train(until=np.inf, points=2, report=lambda _: None)
    assert stands(trainer.student, answers()).tokens_a_round > before
    for name, value in matrices.items():
        assert torch.equal(decoder_of().tensors[name], value)
