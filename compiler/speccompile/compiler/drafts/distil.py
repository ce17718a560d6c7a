"""Make a small draft of a target: have the target answer prompts, and teach some of its layers."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import torch
from torch import Tensor

from speccompile.compiler.drafts.acceptance import Acceptance, Point
from speccompile.compiler.drafts.answers import Answers, AnswersObserver, answers_of, open_asked
from speccompile.compiler.drafts.arithmetic import working_type
from speccompile.compiler.drafts.decoder import Decoder
from speccompile.compiler.drafts.folder import OWN, in_int8, write_draft
from speccompile.compiler.drafts.responses import Response
from speccompile.compiler.drafts.shared_student import SharedStudent
from speccompile.compiler.drafts.student import Student, default_layers, open_target
from speccompile.compiler.drafts.target_caches import TargetCaches
from speccompile.compiler.drafts.training import Schedule, Trainer, stands
from speccompile.compiler.recipe import DistilTable, Recipe
from speccompile.compiler.sources.checkpoint import Checkpoint
from speccompile.runtime.errors import SpeccompileError

__all__ = ["Distilled", "Observer", "check_layers", "distil", "layers_of", "student_of"]

_POINTS = 24  # of the curve
_GLANCED = 3  # every so many held-out answers one is looked at for it


class Observer(AnswersObserver):
    """Is told how far it is; this one tells nobody."""

    def fetching(self, message: str) -> None: ...

    def reading(self, done: int, total: int) -> None: ...

    def training(self, trainer: Trainer) -> None: ...


@dataclass(frozen=True)
class Distilled:
    """A draft in its folder. `acceptance` is by kind of held-out prompt, before the weights were
    stored in INT8, `stored_acceptance` after; where time was up before all was learned it is not
    `done`, and the same call goes on."""

    folder: Path
    layers: tuple[int, ...]
    done: bool
    tokens: int
    curve: Sequence[Point]
    acceptance: Mapping[str, Acceptance]
    stored_acceptance: Mapping[str, Acceptance]


def distil(
    recipe: Recipe, folder: Path, *, cache: Path, seconds: float | None, observer: Observer
) -> Distilled:
    """Train a draft of the recipe's target, as its table `distil` says, and write it to `folder`.

    Responses and the state of training are kept in `cache`, under a hash of all they depend on. At
    most so many `seconds` go by before the draft is written as it is by then. Raises
    SpeccompileError where the table does not fit the target.
    """
    started, settings = time.monotonic(), recipe.distil or DistilTable()
    until = started + seconds if seconds is not None else float("inf")
    target = open_asked(recipe, cache, observer.fetching)
    layers = layers_of(settings, target.config.layers)
    caches = _caches_of(target, layers, cache)
    answers = answers_of(
        target,
        settings,
        table="distil",
        cache=cache,
        observer=observer,
        caches=caches if settings.cache == "target" else None,
    )
    opened = partial(open_target, target.config, target.tensor)
    student = student_of(target, opened, layers, answers.vocabulary, settings)
    if isinstance(student, SharedStudent):
        answers = _read_once(answers, caches(student.target), observer)
    trainer = Trainer(
        student,
        answers.taught,
        answers.tested[::_GLANCED],
        Schedule(settings.tokens, rate=settings.rate, seed=settings.seed),
        _training_folder(answers, settings),
    )
    done = trainer.train(until=until, points=_POINTS, report=observer.training)
    stored = _in_int8(trainer.student)
    found, again = (
        {kind: stands(student, each) for kind, each in answers.held_out.items()}
        for student in (trainer.student, stored)
    )
    distilled = Distilled(folder, tuple(layers), done, trainer.seen, trainer.curve, found, again)
    _write(distilled, trainer, answers, settings)
    return distilled


def layers_of(settings: DistilTable, layers: int) -> tuple[int, ...]:
    """Which of a target's `layers` a draft is made of. Raises SpeccompileError for one that it
    lacks."""
    chosen = settings.layers or default_layers(settings.count, layers)
    check_layers("distil.layers", chosen, layers)
    return chosen


def check_layers(key: str, chosen: Sequence[int], layers: int) -> None:
    """Raise SpeccompileError where a target of so many `layers` lacks one `chosen` by `key`."""
    if wrong := [layer for layer in chosen if not 0 <= layer < layers]:
        raise SpeccompileError(f"{key} has {wrong[0]}, but the target's are 0 to {layers - 1}")


def student_of(
    target: Checkpoint,
    opened: Callable[[], Decoder],
    layers: Sequence[int],
    vocabulary: Tensor,
    settings: DistilTable,
) -> Student:
    """One that begins as `layers` of the target; it is `opened` where the student works in its
    cache."""
    if settings.cache == "own":
        return Student.of(target.config, target.tensor, layers, vocabulary)
    own = OWN["distilled"]
    return SharedStudent.sharing(opened(), target.tensor, layers, vocabulary, trains=own)


def _write(distilled: Distilled, trainer: Trainer, answers: Answers, settings: DistilTable) -> None:
    training = {
        "layers": distilled.layers,
        "settings": settings.model_dump(mode="json"),
        "responses": len(trainer.responses),
        "response_tokens": sum(len(response.tokens) for response in trainer.responses),
        "tokens": distilled.tokens,
        "held_out": {kind: asdict(found) for kind, found in distilled.acceptance.items()},
        "held_out_int8": {
            kind: asdict(found) for kind, found in distilled.stored_acceptance.items()
        },
        "curve": [asdict(point) for point in distilled.curve],
    }
    write_draft(
        distilled.folder,
        config=trainer.student.decoder.config,
        read=trainer.student.read,
        int8=True,
        target=answers.target.provenance,
        token_counts=answers.counts,
        training=training,
        kind="distilled",
        layers=distilled.layers if settings.cache == "target" else (),
    )


def _caches_of(
    target: Checkpoint, layers: Sequence[int], cache: Path
) -> Callable[[Decoder], TargetCaches]:
    sha256, folder = target.provenance.sha256, cache / "drafts" / "read"
    return lambda decoder: TargetCaches(decoder, sha256, layers, folder)


def _read_once(answers: Answers, caches: TargetCaches, observer: Observer) -> Answers:
    """With what the target's cache holds of them."""
    groups = {"": answers.taught, **answers.held_out}
    total, done = sum(map(len, groups.values())), 0
    read = dict[str, list[Response]]()
    for kind, responses in groups.items():

        def report(number: int, _: int, done: int = done) -> None:
            observer.reading(done + number, total)

        read[kind] = caches.of(responses, report)
        done += len(responses)
    return replace(answers, taught=read.pop(""), held_out=read)


def _in_int8(student: Student) -> Student:
    """The same, as it comes back from its folder."""
    stored = {name: torch.from_numpy(in_int8(student.read(name))) for name in student.trained}
    tensors = {**student.decoder.tensors, **stored}
    return replace(student, decoder=replace(student.decoder, tensors=tensors), trained=stored)


def _training_folder(answers: Answers, settings: DistilTable) -> Path:
    """Named by all that the curve depends on."""
    target = answers.target.provenance.sha256
    numbers = str(working_type())
    identity = json.dumps([target, settings.model_dump(mode="json"), answers.names, numbers])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:24]
    return answers.folder / f"training-{digest}"
