"""Make a draft that is some of a target's own layers: choose them, and teach their norms."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from speccompile.compiler.drafts.acceptance import Acceptance
from speccompile.compiler.drafts.answers import Answers, answers_of, open_asked
from speccompile.compiler.drafts.arithmetic import working_type
from speccompile.compiler.drafts.distil import Observer
from speccompile.compiler.drafts.folder import write_draft
from speccompile.compiler.drafts.layer_search import LayerSearch, LayerSet, fastest, removed_at_once
from speccompile.compiler.drafts.lesson import Lesson, lessons
from speccompile.compiler.drafts.prediction import Pace, measured_pace, weight_share
from speccompile.compiler.drafts.shared_student import SharedStudent, head_of
from speccompile.compiler.drafts.student import open_target
from speccompile.compiler.drafts.training import Schedule, Trainer, stands
from speccompile.compiler.recipe import Recipe, SharedTable
from speccompile.runtime.artifact import Artifact
from speccompile.runtime.errors import SpeccompileError

__all__ = ["Shared", "SharedObserver", "share"]

_POINTS = 4  # of the curve
_TESTED = 3  # every so many of the held-out prompts: a test runs the target and four passes
_SEARCHED = 2048  # tokens of answers that layers are chosen on
_ROOM = 2048  # tokens of a batch: what attention keeps of it is large


class SharedObserver(Observer):
    """Is told how far it is; this one tells nobody."""

    def searching(self, layers: int, share: float) -> None: ...


@dataclass(frozen=True)
class Shared:
    """A draft in its folder: `layers` of a target's `depth`, which read `share` of its weights.

    `acceptance` is by kind of held-out prompt, in the target's cache; `apart` the same in a cache
    of its own. `search` has the sets that were found, all layers first, and is empty where the
    recipe names the layers. Where time was up before all was learned it is not `done`.
    """

    folder: Path
    layers: tuple[int, ...]
    depth: int
    share: float
    pace: Pace
    done: bool
    tokens: int
    search: Sequence[LayerSet]
    acceptance: Mapping[str, Acceptance]
    apart: Mapping[str, Acceptance]


def share(
    recipe: Recipe,
    folder: Path,
    *,
    measured: Artifact | None,
    cache: Path,
    seconds: float | None,
    observer: SharedObserver,
) -> Shared:
    """Make a draft of layers of the recipe's target, as its table `shared` says, in `folder`.

    An artifact of the target that was `measured` tells what steps cost. Answers, search and
    training are kept in `cache`. At most so many `seconds` go by before what is learned is written.
    Raises SpeccompileError where the table does not fit the target.
    """
    started, settings = time.monotonic(), recipe.shared or SharedTable()
    until = started + seconds if seconds is not None else float("inf")
    target = open_asked(recipe, cache, observer.fetching)
    config, sha256 = target.config, target.provenance.sha256
    _check(settings, config.layers)
    pace = measured_pace(measured, config, sha256) if measured else Pace()
    answers = answers_of(target, settings, table="shared", cache=cache, observer=observer)
    decoder, tokens = open_target(config, target.tensor), len(answers.vocabulary)
    vocabulary = answers.vocabulary
    found: Sequence[LayerSet] = ()
    layers = settings.layers
    if not layers:
        head = head_of(decoder, vocabulary)
        search = _search(answers, settings, _few(answers, vocabulary), config.layers)
        found = LayerSearch(decoder, head, *search).run(settings.count or 1, observer.searching)
        shares = [weight_share(config, len(each.layers), tokens) for each in found]
        chosen = found[-1] if settings.count else fastest(found, shares, pace)
        layers = chosen.layers
    student = SharedStudent.sharing(decoder, target.tensor, layers, vocabulary)
    held_out = {kind: each[::_TESTED] for kind, each in answers.held_out.items()}
    trainer = Trainer(
        student,
        answers.taught,
        [response for each in held_out.values() for response in each],
        Schedule(settings.tokens, rate=settings.rate, seed=settings.seed),
        answers.folder / f"training-{_digest(answers, settings.model_dump(mode='json'), layers)}",
    )
    done = trainer.train(until=until, points=_POINTS, report=observer.training)
    shared = Shared(
        folder,
        tuple(layers),
        config.layers,
        weight_share(config, len(layers), tokens),
        pace,
        done,
        trainer.seen,
        found,
        {kind: stands(student, each) for kind, each in held_out.items()},
        {kind: stands(student.apart, each) for kind, each in held_out.items()},
    )
    _write(shared, trainer, answers, settings)
    return shared


def _check(settings: SharedTable, layers: int) -> None:
    """Whether the target has such layers; a draft of all of them would be the target."""
    wrong = [layer for layer in settings.layers if not 0 <= layer < layers]
    if wrong:
        raise SpeccompileError(
            f"shared.layers has {wrong[0]}, but the target's are 0 to {layers - 1}"
        )
    if (settings.count or len(settings.layers)) >= layers:
        raise SpeccompileError(
            f"the target has {layers} layers, and a draft of them all is the target: "
            'lower shared.count, or use draft.source = "target"'
        )


def _few(answers: Answers, vocabulary: torch.Tensor) -> list[Lesson]:
    """Of all answers every so many, for the search."""
    said = sum(len(each.tokens) for each in answers.taught)
    chosen = answers.taught[:: max(said // _SEARCHED, 1)]
    return list(lessons(chosen, vocabulary, answers.target.config.vocab_size, _ROOM, 0))


def _search(
    answers: Answers, settings: SharedTable, few: Sequence[Lesson], layers: int
) -> tuple[Sequence[Lesson], int, Path]:
    """What the search learns on, how many layers go at once, and where it is kept."""
    at_once = removed_at_once(layers, settings.count or 1, settings.search)
    name = f"layers-{_digest(answers, settings.vocabulary, at_once)}.json"
    return few, at_once, answers.folder / name


def _digest(answers: Answers, *what: object) -> str:
    """Of all that something made of the answers depends on."""
    target, numbers = answers.target.provenance.sha256, str(working_type())
    identity = json.dumps([target, answers.names, numbers, "shared", *what])
    return hashlib.sha256(identity.encode()).hexdigest()[:24]


def _write(shared: Shared, trainer: Trainer, answers: Answers, settings: SharedTable) -> None:
    training = {
        "settings": settings.model_dump(mode="json"),
        "search": [asdict(each) for each in shared.search],
        "responses": len(trainer.responses),
        "response_tokens": sum(len(response.tokens) for response in trainer.responses),
        "tokens": shared.tokens,
        "held_out": {kind: asdict(found) for kind, found in shared.acceptance.items()},
        "held_out_apart": {kind: asdict(found) for kind, found in shared.apart.items()},
        "curve": [asdict(point) for point in trainer.curve],
    }
    write_draft(
        shared.folder,
        config=trainer.student.decoder.config,
        read=trainer.student.read,
        int8=False,
        target=answers.target.provenance,
        token_counts=answers.counts,
        training=training,
        kind="shared",
        layers=shared.layers,
    )
