"""Which shape of a distilled draft is predicted to be fastest: all are tried for a short while, the
better half for twice as long, and so on.

A trial is a whole training of its length, from the target's layers on: its rate has fallen to the
end when the student is tested, as that of `distil` has, and one that went on from there would have
to unlearn what it settled in. That costs less than twice what going on would.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache as once
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from speccompile.compiler.drafts.acceptance import Acceptance
from speccompile.compiler.drafts.answers import Answers, answers_of, open_asked
from speccompile.compiler.drafts.arithmetic import working_type
from speccompile.compiler.drafts.asking import learned_tokens
from speccompile.compiler.drafts.decoder import Decoder
from speccompile.compiler.drafts.distil import Observer, student_of
from speccompile.compiler.drafts.prediction import Pace, Prediction, measured_pace, weight_share
from speccompile.compiler.drafts.shapes import Shape, Space, own_shape
from speccompile.compiler.drafts.student import Student, open_target
from speccompile.compiler.drafts.training import Schedule
from speccompile.compiler.drafts.trials import Trials
from speccompile.compiler.recipe import DistilTable, Recipe
from speccompile.compiler.sources.checkpoint import Provenance
from speccompile.runtime.artifact import Artifact

__all__ = ["Rung", "SearchObserver", "Searched", "ShapeSearch", "Trial", "search_shapes"]

_TESTED = 3  # every so many of the held-out prompts, as a glance of `distil`


@dataclass(frozen=True)
class Trial:
    """What a shape that reads `share` of the target's weights came to."""

    shape: Shape
    share: float
    acceptance: Acceptance
    prediction: Prediction


@dataclass(frozen=True)
class Rung:
    """The trials of so many `tokens` each, the fastest first; `kept` of them are tried for longer.
    Where time was up before all were tried it is not `done`."""

    tokens: int
    trials: Sequence[Trial]
    kept: int
    done: bool


class SearchObserver(Observer):
    """Is told how far it is; this one tells nobody."""

    def trying(self, shape: Shape, number: int, count: int) -> None: ...

    def tried(self, rung: Rung) -> None: ...


@dataclass(frozen=True)
class ShapeSearch:
    """Halves shapes by what `trials` show of their acceptance, at a `pace`; `share` says what each
    reads of the target's weights."""

    trials: Trials
    pace: Pace
    shares: dict[Shape, float]

    def rungs(self, tokens: int, *, until: float, observer: SearchObserver) -> Iterator[Rung]:
        """From the first, of so many `tokens` a shape, to the one whose better half is one shape,
        or until the clock (`time.monotonic`) shows `until`."""
        shapes = list(self.shares)
        while True:
            rung = self._rung(shapes, tokens, until, observer)
            observer.tried(rung)
            yield rung
            if not rung.kept:
                return
            shapes = [trial.shape for trial in rung.trials[: rung.kept]]
            tokens *= 2

    def _rung(
        self, shapes: Sequence[Shape], tokens: int, until: float, observer: SearchObserver
    ) -> Rung:
        trials = list[Trial]()
        for number, shape in enumerate(shapes, start=1):
            observer.trying(shape, number, len(shapes))
            found = self.trials.acceptance(shape, tokens, until=until, report=observer.training)
            if found is None:
                break
            share = self.shares[shape]
            predicted = self.pace.predict(share, found.positions)
            trials.append(Trial(shape, share, found, predicted))
        trials.sort(key=lambda trial: (-trial.prediction.speedup, trial.share))
        done, half = len(trials) == len(shapes), len(shapes) // 2
        return Rung(tokens, trials, half if done and half > 1 else 0, done)


@dataclass(frozen=True)
class Searched:
    """The `rungs` of a search, of which the last one's first trial is the best; `own` is the
    recipe's shape. Where time was up it is not `done`, and the same call goes on."""

    target: Provenance
    own: Shape
    pace: Pace
    rungs: Sequence[Rung]

    @property
    def done(self) -> bool:
        return self.rungs[-1].done

    @property
    def best(self) -> Trial | None:
        """None where it is not done."""
        return self.rungs[-1].trials[0] if self.done else None


def search_shapes(
    recipe: Recipe,
    space: Space,
    *,
    tokens: int,
    measured: Artifact | None,
    cache: Path,
    seconds: float | None,
    observer: SearchObserver,
) -> Searched:
    """Search `space` for the draft of the recipe's target that is predicted to be fastest.

    Shapes learn as the recipe's table `distil` says, but for its layers, vocabulary and tokens: of
    those, all learn from `tokens`, and the better ones from more. An artifact of the target that
    was `measured` tells what steps cost. Answers, and what trials came to, are kept in `cache`; at
    most so many `seconds` go by. Raises SpeccompileError where space or table do not fit the
    target.
    """
    started, settings = time.monotonic(), recipe.distil or DistilTable()
    until = started + seconds if seconds is not None else float("inf")
    target = open_asked(recipe, cache, observer.fetching)
    config, files = target.config, target.tokenizer
    shapes = space.shapes(settings, config)
    pace = measured_pace(measured, config, target.provenance.sha256) if measured else Pace()
    tokenizer, nothing = Tokenizer.from_str(files.tokenizer_json), np.zeros(config.vocab_size)
    for shape in shapes:  # before anything is asked, whether what has to be in it fits
        learned_tokens(tokenizer, nothing.astype(np.int64), shape.vocabulary, files.eos_token_ids)
    answers = answers_of(target, settings, table="distil", cache=cache, observer=observer)
    shares = {each: weight_share(config, len(each.layers), each.vocabulary) for each in shapes}
    search = ShapeSearch(_trials(answers, settings, tokenizer), pace, shares)
    rungs = list(search.rungs(tokens, until=until, observer=observer))
    return Searched(target.provenance, own_shape(settings, config), pace, rungs)


def _trials(answers: Answers, settings: DistilTable, tokenizer: Tokenizer) -> Trials:
    target, ends = answers.target, answers.target.tokenizer.eos_token_ids

    @once
    def opened() -> Decoder:
        return open_target(target.config, target.tensor)

    def student(shape: Shape) -> Student:
        vocabulary = learned_tokens(tokenizer, answers.counts, shape.vocabulary, ends)
        return student_of(target, opened, shape.layers, vocabulary, settings)

    return Trials(
        student,
        answers.taught,
        answers.tested[::_TESTED],
        Schedule(settings.tokens, rate=settings.rate, seed=settings.seed),
        [target.provenance.sha256, answers.names, settings.cache, str(working_type())],
        answers.folder,
    )
