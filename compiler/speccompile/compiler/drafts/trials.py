"""What a shape of a draft comes to when it is taught for a while: tried once, and then known."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from shutil import rmtree

from speccompile.compiler.drafts.acceptance import Acceptance
from speccompile.compiler.drafts.responses import Response
from speccompile.compiler.drafts.shapes import Shape
from speccompile.compiler.drafts.student import Student
from speccompile.compiler.drafts.training import Schedule, Trainer

__all__ = ["Trials"]


@dataclass(frozen=True)
class Trials:
    """Teaches the `student` of a shape on answers, `taught`, and looks how far it stands on others,
    `tested`.

    What it came to is kept in `folder`, under a hash of `identity`, of all that it depends on
    beside shape and schedule. Until it is known, the state of the training is kept there too.
    """

    student: Callable[[Shape], Student]
    taught: Sequence[Response]
    tested: Sequence[Response]
    schedule: Schedule
    identity: object
    folder: Path

    def acceptance(
        self, shape: Shape, tokens: int, *, until: float, report: Callable[[Trainer], None]
    ) -> Acceptance | None:
        """Of chains, after a whole schedule of so many `tokens`; None where the clock
        (`time.monotonic`) shows `until` before that, and the same call goes on."""
        schedule = replace(self.schedule, tokens=tokens)
        file = self.folder / f"{self._name(shape, schedule)}.json"
        state = file.with_suffix("")
        if not file.exists():
            trainer = Trainer(self.student(shape), self.taught, self.tested, schedule, state)
            if not trainer.train(until=until, points=1, report=report):
                return None
            point = trainer.curve[-1]
            _write(file, Acceptance(tuple(point.positions), point.tokens_a_round))
        if state.exists():
            rmtree(state)  # three times the weights, and of no more use
        found = json.loads(file.read_text(encoding="utf-8"))
        return Acceptance(tuple(found["positions"]), found["tokens_a_round"])

    def _name(self, shape: Shape, schedule: Schedule) -> str:
        identity = json.dumps([self.identity, asdict(shape), asdict(schedule)])
        return f"trial-{hashlib.sha256(identity.encode()).hexdigest()[:24]}"


def _write(file: Path, found: Acceptance) -> None:
    partial = file.with_suffix(".partial")
    partial.write_text(json.dumps(asdict(found)), encoding="utf-8")
    partial.replace(file)
