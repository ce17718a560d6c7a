"""A search over shapes of a tiny target in which some layers do nothing."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from speccompile.compiler.decoder import tensor_shapes
from speccompile.compiler.drafts.decoder import Decoder
from speccompile.compiler.drafts.prediction import Pace, weight_share
from speccompile.compiler.drafts.responses import Response, respond
from speccompile.compiler.drafts.shape_search import Rung, SearchObserver, ShapeSearch
from speccompile.compiler.drafts.shapes import Shape
from speccompile.compiler.drafts.student import Student
from speccompile.compiler.drafts.training import Schedule, Trainer
from speccompile.compiler.drafts.trials import Trials
from tests.families import tiny
from tests.unit.compiler.drafts.tiny import ENDS, PROMPTS, VOCABULARY

MODEL = tiny("llama-tied", num_hidden_layers=4)
NEVER = float("inf")
TOKENS = 200

# How much each layer adds: all that it would, or less.
ENDS_WORK, MIDDLE_WORKS, ONE_IS_WEAK = (
    (1.0, 0.0, 0.0, 1.0),
    (0.0, 1.0, 1.0, 0.0),
    (1.0, 0.05, 0.0, 1.0),
)

ENDS_KEPT, MIDDLE_KEPT, THREE_KEPT, SHORT_HEAD = (
    *(Shape(layers, 0) for layers in ((0, 3), (1, 2), (0, 1, 3))),
    Shape((0, 3), 256),
)
FOUR = (ENDS_KEPT, MIDDLE_KEPT, THREE_KEPT, SHORT_HEAD)
LEARNING = 3e-3


@cache
def target(work: Sequence[float]) -> Decoder:
    tensors = {name: torch.tensor(MODEL.read(name)) for name in tensor_shapes(MODEL.config)}
    for layer, scale in enumerate(work):
        for name in ("self_attn.o_proj", "mlp.down_proj"):
            tensors[f"model.layers.{layer}.{name}.weight"] *= scale
    return Decoder(MODEL.config, tensors)


@cache
def said(work: Sequence[float]) -> list[Response]:
    temperatures = [0.0] * len(PROMPTS)
    return respond(target(work), PROMPTS, temperatures, length=16, ends=ENDS, seed=0)


def search(
    work: Sequence[float],
    shapes: Sequence[Shape],
    folder: Path,
    *,
    pace: Pace | None = None,
    rate: float = 1e-12,  # at which nothing is learned: a shape is what it was
) -> ShapeSearch:
    whole, answers = target(work), said(work)

    def read(name: str) -> NDArray[np.float32]:
        values: NDArray[np.float32] = whole.tensors[name].numpy()
        return values

    def student(shape: Shape) -> Student:
        vocabulary = torch.arange(shape.vocabulary or VOCABULARY)
        return Student.of(MODEL.config, read, shape.layers, vocabulary)

    schedule = Schedule(TOKENS, room=128, rate=rate)
    trials = Trials(student, answers, answers[:6], schedule, ["tiny", work], folder)
    config = MODEL.config
    shares = {each: weight_share(config, len(each.layers), each.vocabulary) for each in shapes}
    return ShapeSearch(trials, pace or Pace(), shares)


def found(searching: ShapeSearch, observer: SearchObserver | None = None) -> list[Rung]:
    observer = observer or SearchObserver()
    return list(searching.rungs(TOKENS, until=NEVER, observer=observer))


class Watching(SearchObserver):
    """Keeps the shape of every lesson; stops as if killed after so many."""

    def __init__(self, lessons: int = 1 << 30) -> None:
        self._left, self.learned = lessons, list[Shape]()

    def trying(self, shape: Shape, number: int, count: int) -> None:
        self._shape = shape

    def training(self, trainer: Trainer) -> None:
        self.learned.append(self._shape)
        self._left -= 1
        if not self._left:
            raise KeyboardInterrupt


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Rung], list[Shape]]:
    """A search from end to end: its folder, what it found, and the shape of every lesson."""
    folder, watching = tmp_path_factory.mktemp("whole"), Watching()
    return folder, found(search(ENDS_WORK, FOUR, folder, rate=LEARNING), watching), watching.learned


def test_of_equal_cost_what_stands_farther_is_better(tmp_path: Path) -> None:
    [rung] = found(search(ENDS_WORK, [MIDDLE_KEPT, ENDS_KEPT], tmp_path))
    best, other = rung.trials
    assert best.shape == ENDS_KEPT
    assert best.share == other.share
    assert best.acceptance.tokens_a_round > other.acceptance.tokens_a_round + 1.0


def test_where_the_other_layers_work_the_other_shape_is_better(tmp_path: Path) -> None:
    """The control: it is not by their numbers or their order."""
    [rung] = found(search(MIDDLE_WORKS, [MIDDLE_KEPT, ENDS_KEPT], tmp_path))
    assert rung.trials[0].shape == MIDDLE_KEPT


def test_of_equal_acceptance_what_costs_less_is_better(tmp_path: Path) -> None:
    [rung] = found(search(ENDS_WORK, [THREE_KEPT, ENDS_KEPT], tmp_path))
    best, other = rung.trials
    assert best.shape == ENDS_KEPT
    assert best.acceptance == other.acceptance
    assert best.share < other.share
    assert best.prediction.speedup > other.prediction.speedup


def test_what_stands_farther_is_better_where_steps_cost_next_to_nothing(tmp_path: Path) -> None:
    """The control: it is not the fewest layers that win, but what they cost."""
    shapes = [ENDS_KEPT, THREE_KEPT]
    for cheaper, better in ((1e-3, THREE_KEPT), (10.0, ENDS_KEPT)):
        [rung] = found(search(ONE_IS_WEAK, shapes, tmp_path, pace=Pace(cheaper=cheaper)))
        assert rung.trials[0].shape == better
    stood = {trial.shape: trial.acceptance.positions[0] for trial in rung.trials}
    assert stood[THREE_KEPT] > stood[ENDS_KEPT]


def test_the_better_half_learns_twice_as_much(
    whole: tuple[Path, list[Rung], list[Shape]],
) -> None:
    _, [first, second], learned = whole
    assert (first.tokens, len(first.trials), first.kept) == (TOKENS, 4, 2)
    assert (second.tokens, len(second.trials), second.kept) == (2 * TOKENS, 2, 0)
    assert {trial.shape for trial in second.trials} == {trial.shape for trial in first.trials[:2]}
    for rung in (first, second):
        for better, worse in pairwise(rung.trials):
            assert better.prediction.speedup >= worse.prediction.speedup
    lessons = [learned.count(trial.shape) for trial in first.trials]
    assert min(lessons[:2]) > 2 * max(lessons[2:])  # from the start again


def test_killed_it_goes_on_to_the_same_table(
    whole: tuple[Path, list[Rung], list[Shape]], tmp_path: Path
) -> None:
    _, expected, all_learned = whole
    done = list[Shape]()
    for lessons in (1, 4, 9):
        killed = Watching(lessons)
        with pytest.raises(KeyboardInterrupt):
            found(search(ENDS_WORK, FOUR, tmp_path, rate=LEARNING), killed)
        last = killed.learned[-1]
        done += killed.learned[: killed.learned.index(last)]  # trials that are known by now
    again = Watching()
    assert found(search(ENDS_WORK, FOUR, tmp_path, rate=LEARNING), again) == expected
    assert [*done, *again.learned] == all_learned


def test_another_training_gives_another_table(
    whole: tuple[Path, list[Rung], list[Shape]], tmp_path: Path
) -> None:
    """The control: tables tell trainings apart, also in the folder of another."""
    folder, expected, _ = whole
    [first, *_] = search(ENDS_WORK, FOUR, folder, rate=LEARNING / 30).rungs(
        TOKENS, until=NEVER, observer=SearchObserver()
    )
    assert first != expected[0]


def test_stopped_in_time_it_goes_on_and_leaves_no_state(
    whole: tuple[Path, list[Rung], list[Shape]], tmp_path: Path
) -> None:
    searching = search(ENDS_WORK, FOUR[:2], tmp_path, rate=LEARNING)
    [none] = searching.rungs(TOKENS, until=0.0, observer=SearchObserver())
    assert (none.trials, none.kept, none.done) == ([], 0, False)
    assert [path.is_dir() for path in tmp_path.iterdir()] == [True]
    [rung] = found(searching)
    assert all(trial in whole[1][0].trials for trial in rung.trials)
    assert [path.suffix for path in tmp_path.iterdir()] == [".json", ".json"]


def test_what_was_tried_is_known_at_another_pace_and_among_others(
    whole: tuple[Path, list[Rung], list[Shape]],
) -> None:
    again, other = Watching(), Shape((0,), 0)
    shapes, dear = [other, MIDDLE_KEPT], Pace(cheaper=10.0)
    [rung] = found(search(ENDS_WORK, shapes, whole[0], pace=dear, rate=LEARNING), again)
    assert set(again.learned) == {other}
    [known] = [trial for trial in whole[1][0].trials if trial.shape == MIDDLE_KEPT]
    [found_again] = [trial for trial in rung.trials if trial.shape == MIDDLE_KEPT]
    assert found_again.acceptance == known.acceptance
    assert found_again.prediction != known.prediction
