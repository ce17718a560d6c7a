"""Teach a student, so that a stop costs a few minutes and a restart changes nothing."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from speccompile.compiler.drafts.acceptance import DEPTH, Acceptance, Point, acceptance
from speccompile.compiler.drafts.lesson import Lesson, Loss, lesson_of, lessons, loss_of
from speccompile.compiler.drafts.responses import Response
from speccompile.compiler.drafts.student import Student
from speccompile.runtime.errors import SpeccompileError

__all__ = ["Schedule", "Trainer", "stands"]

_STATE = "state.safetensors"
_STEEPEST = 1.0  # of a gradient's norm
_BETAS, _WEIGHT_DECAY = (0.9, 0.95), 0.01
_SAVED_EVERY = 120.0  # seconds
_WARM_UP = 0.02  # of all tokens
_TESTED_TOGETHER = 8  # answers


@dataclass(frozen=True)
class Schedule:
    """How much is learned: `tokens` in all, at most `room` a step, at a `rate` that rises to its
    peak and falls by a cosine.

    Steps are what a training of hours lacks, so `room` is small.
    """

    tokens: int
    room: int = 2048
    rate: float = 2e-3
    seed: int = 0

    def rate_at(self, seen: int) -> float:
        progress = seen / self.tokens
        if progress < _WARM_UP:
            return self.rate * (seen + self.room) / (_WARM_UP * self.tokens + self.room)
        return self.rate * (0.02 + 0.98 * 0.5 * (1.0 + math.cos(math.pi * min(progress, 1.0))))


@dataclass
class Trainer:
    """Trains `student` on `responses`; what it holds out is in `held_out`.

    Its state is kept in `folder`: with the same student, responses and schedule it goes on there,
    to the same curve.
    """

    student: Student
    responses: Sequence[Response]
    held_out: Sequence[Response]
    schedule: Schedule
    folder: Path
    loss: Callable[[Tensor, Lesson], Loss] = loss_of
    curve: list[Point] = field(default_factory=list[Point])

    def __post_init__(self) -> None:
        self._parameters = list(self.student.trained.values())
        norms = [each for each in self._parameters if each.ndim == 1]
        matrices = [each for each in self._parameters if each.ndim > 1]
        groups: list[dict[str, Any]] = [
            {"params": matrices},
            {"params": norms, "weight_decay": 0.0},
        ]
        self._optimizer = torch.optim.AdamW(
            groups,
            betas=_BETAS,
            weight_decay=_WEIGHT_DECAY,
            fused=True,
        )
        self._seen = self._step = 0
        self._seconds = 0.0
        self._sums = [0.0, 0.0, 0.0]
        if (self.folder / _STATE).exists():
            self._restore()

    @property
    def seen(self) -> int:
        """Tokens learned from so far."""
        return self._seen

    def train(self, *, until: float, points: int, report: Callable[[Trainer], None]) -> bool:
        """Learn until all tokens are seen, or the clock (`time.monotonic`) shows `until`.

        The curve gets a point every 1/`points` of the way. Returns whether it is done. Raises
        SpeccompileError where the loss is not finite; the last state is on disk.
        """
        saved = time.monotonic()
        for lesson in self._rest():
            if self._seen >= self.schedule.tokens or time.monotonic() >= until:
                break
            start = time.monotonic()
            before = self._seen * points // self.schedule.tokens
            self._learn(lesson)
            if self._seen * points // self.schedule.tokens > before:
                self.curve.append(self._point(time.monotonic() - start))
            self._seconds += time.monotonic() - start
            report(self)
            if time.monotonic() - saved > _SAVED_EVERY:
                self._save()
                saved = time.monotonic()
        self._save()
        return self._seen >= self.schedule.tokens

    def _rest(self) -> Iterator[Lesson]:
        """The lessons from where it stopped."""
        vocabulary, size = self.student.vocabulary, self.student.decoder.config.vocab_size
        skipped = self._step
        for epoch in count():
            seed = self.schedule.seed * 1000 + epoch
            for lesson in lessons(self.responses, vocabulary, size, self.schedule.room, seed):
                if skipped:
                    skipped -= 1
                else:
                    yield lesson

    def _learn(self, lesson: Lesson) -> None:
        for group in self._optimizer.param_groups:
            group["lr"] = self.schedule.rate_at(self._seen)
        loss = self.loss(self.student.logits(lesson, self._step), lesson)
        total = float(loss.total.detach())
        if not math.isfinite(total):
            raise SpeccompileError(
                f"training diverged: the loss is {total} after {self._seen} tokens; lower "
                f"the recipe's rate (the state of a few minutes before is in {self.folder})"
            )
        self._optimizer.zero_grad()
        torch.autograd.backward(loss.total)
        torch.nn.utils.clip_grad_norm_(self._parameters, _STEEPEST)
        self._optimizer.step()
        self._seen += lesson.tokens.numel()
        self._step += 1
        for place, value in enumerate((total, float(loss.overlap), 1.0)):
            self._sums[place] += value

    def _point(self, seconds: float) -> Point:
        found = stands(self.student, self.held_out)
        loss, overlap, steps = self._sums
        self._sums = [0.0, 0.0, 0.0]
        return Point(
            self._seen,
            self._seconds + seconds,
            loss / steps,
            overlap / steps,
            found.positions,
            found.tokens_a_round,
        )

    def _save(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        tensors = {f"weight.{name}": value.detach() for name, value in self.student.trained.items()}
        for name, value in self.student.trained.items():
            for key, moment in self._optimizer.state[value].items():
                tensors[f"{key}.{name}"] = moment
        done = {
            "seen": self._seen,
            "step": self._step,
            "seconds": self._seconds,
            "sums": self._sums,
        }
        curve = [asdict(point) for point in self.curve]
        metadata = {"done": json.dumps(done), "curve": json.dumps(curve)}
        partial = self.folder / f"{_STATE}.partial"
        save_file(tensors, partial, metadata)
        partial.replace(self.folder / _STATE)

    def _restore(self) -> None:
        path = self.folder / _STATE
        with safe_open(path, "pt") as file:
            metadata = file.metadata()
        tensors = load_file(path)
        done = json.loads(metadata["done"])
        self._seen, self._step = done["seen"], done["step"]
        self._seconds, self._sums = done["seconds"], done["sums"]
        self.curve = [Point(**point) for point in json.loads(metadata["curve"])]
        with torch.no_grad():
            for name, value in self.student.trained.items():
                value.copy_(tensors[f"weight.{name}"])
                if self._step:
                    self._optimizer.state[value] = {
                        key: tensors[f"{key}.{name}"] for key in ("step", "exp_avg", "exp_avg_sq")
                    }


@torch.no_grad()
def stands(student: Student, responses: Sequence[Response]) -> Acceptance:
    """How far a student's greedy chains of `DEPTH` stand on greedy `responses`."""
    vocabulary, size = student.vocabulary, student.decoder.config.vocab_size

    def right() -> Iterator[NDArray[np.bool_]]:
        for start in range(0, len(responses), _TESTED_TOGETHER):
            few = responses[start : start + _TESTED_TOGETHER]
            found = student.right(lesson_of(few, vocabulary, size))
            yield from np.split(found, np.cumsum([len(each.tokens) for each in few])[:-1])

    return acceptance(right(), DEPTH)
