from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
import torch

from speccompile.compiler.decoder import tensor_shapes
from speccompile.compiler.drafts.decoder import Decoder
from speccompile.compiler.drafts.layer_search import (
    LayerSearch,
    LayerSet,
    fastest,
    removed_at_once,
)
from speccompile.compiler.drafts.lesson import Lesson, lessons
from speccompile.compiler.drafts.prediction import Pace
from speccompile.compiler.drafts.responses import respond
from speccompile.compiler.drafts.shared_student import SharedStudent, head_of
from tests.families import tiny
from tests.unit.compiler.drafts.tiny import ENDS, PROMPTS, VOCABULARY

MODEL = tiny("llama-tied", num_hidden_layers=5)
ALL = torch.arange(VOCABULARY)


@pytest.fixture(scope="module")
def target() -> Decoder:
    """Its layer 3 adds next to nothing."""
    tensors = {name: torch.tensor(MODEL.read(name)) for name in tensor_shapes(MODEL.config)}
    for name in ("self_attn.o_proj", "mlp.down_proj"):
        tensors[f"model.layers.3.{name}.weight"] *= 1e-3
    return Decoder(MODEL.config, tensors)


@pytest.fixture(scope="module")
def few(target: Decoder) -> list[Lesson]:
    said = respond(target, PROMPTS, [0.0] * len(PROMPTS), length=12, ends=ENDS, seed=0)
    return list(lessons(said, ALL, VOCABULARY, 200, 0))


def search(target: Decoder, few: list[Lesson], file: Path, at_once: int = 1) -> LayerSearch:
    return LayerSearch(target, head_of(target, ALL), few, at_once, file)


def never(layers: int, share: float) -> None:
    """No progress."""


def test_what_is_missed_least_goes_first(
    target: Decoder, few: list[Lesson], tmp_path: Path
) -> None:
    found = search(target, few, tmp_path / "found.json").run(1, never)
    assert [len(each.layers) for each in found] == [5, 4, 3, 2, 1]
    assert found[1].layers == (0, 1, 2, 4)
    assert found[1].overlap == pytest.approx(found[0].overlap, abs=0.02)
    assert found[2].overlap < found[1].overlap - 0.05
    for before, after in pairwise(found):
        assert set(after.layers) < set(before.layers)


def test_the_overlap_is_that_of_the_student_of_these_layers(
    target: Decoder, few: list[Lesson], tmp_path: Path
) -> None:
    found = search(target, few, tmp_path / "found.json").run(3, never)[-1]
    assert found.overlap == pytest.approx(_met(target, few, found.layers), abs=0.01)


def test_stopped_it_goes_on(target: Decoder, few: list[Lesson], tmp_path: Path) -> None:
    whole = search(target, few, tmp_path / "whole.json").run(2, never)

    def stop(layers: int, share: float) -> None:
        if layers == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        search(target, few, tmp_path / "part.json").run(2, stop)
    rounds: list[int] = []
    part = search(target, few, tmp_path / "part.json")
    assert part.run(2, lambda layers, share: rounds.append(layers)) == whole
    assert {*rounds} == {4, 3}
    again = search(target, few, tmp_path / "part.json")
    assert again.run(3, stop) == whole[:3]


def test_several_go_at_once(target: Decoder, few: list[Lesson], tmp_path: Path) -> None:
    found = search(target, few, tmp_path / "found.json", at_once=3).run(1, never)
    assert [len(each.layers) for each in found] == [5, 2, 1]
    assert found[1].overlap == pytest.approx(_met(target, few, found[1].layers), abs=0.01)


def test_layers_go_one_at_a_time_where_that_is_cheap() -> None:
    assert removed_at_once(30, 8, 500) == 1
    assert removed_at_once(30, 8, 30 + 28 + 26 + 24 + 22 + 20 + 18 + 16 + 14 + 12 + 10) == 2
    assert removed_at_once(30, 8, 31) == 22
    assert removed_at_once(30, 8, 1) == 22
    assert removed_at_once(2, 1, 500) == 1
    for step in range(1, 20):
        budget = sum(range(40, 10, -step))
        assert sum(range(40, 10, -removed_at_once(40, 10, budget))) <= budget


def test_as_many_are_kept_as_pay() -> None:
    found = [LayerSet(tuple(range(n)), overlap) for n, overlap in ((4, 0.9), (3, 0.6), (1, 0.45))]
    shares = [1.0, 0.75, 0.25]
    assert fastest(found, shares, Pace()) == found[2]
    assert fastest([*found[:2], LayerSet((0,), 0.0)], shares, Pace()) == found[1]
    assert fastest([found[0], LayerSet((0, 1, 2), 0.0)], shares[:2], Pace()).layers == (0, 1, 2)


def _met(target: Decoder, few: list[Lesson], layers: tuple[int, ...]) -> float:
    """How much of the laws a student of these layers meets."""
    student = SharedStudent.sharing(target, lambda name: target.tensors[name].numpy(), layers, ALL)
    total, rows = 0.0, 0
    with torch.no_grad():
        for number, lesson in enumerate(few):
            laws = student.logits(lesson, number).softmax(-1)
            met = torch.minimum(laws.gather(1, lesson.likeliest), lesson.probabilities)
            total, rows = total + float(met.sum()), rows + len(laws)
    return total / rows
