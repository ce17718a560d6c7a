"""The sections of the check: which there are, what each is given, and what it brings."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

__all__ = ["SECTIONS", "Outcome", "Section", "Skip", "Task", "run_here"]

Status = Literal["ok", "failed", "skipped"]

_UNFINISHED = "it did not come to its end"
_TOLD = 5  # differences that a reason names


@dataclass(frozen=True)
class Section:
    """`run` is "module:function", called with a `Task`; `needs` are modules that must be installed.
    `share` is its part of the time, beside those of the others."""

    run: str
    share: int
    needs: tuple[str, ...] = ()


SECTIONS: Mapping[str, Section] = {
    "kernels": Section("tests.gpu.kernels:run", 4),
    "bandwidth": Section("tests.gpu.bandwidth:run", 3),
    "graphs": Section("tests.gpu.graphs:run", 5, ("torch",)),
    "transformers": Section("tests.gpu.peer:run", 4, ("torch", "transformers")),
    "tensorrt": Section(
        "tests.gpu.plans:run", 4, ("torch", "transformers", "onnx_ir", "onnxruntime")
    ),
    "artifact": Section("tests.gpu.artifact:run", 3, ("tokenizers", "jinja2")),
}


@dataclass(frozen=True)
class Outcome:
    """`reason` says why a section was skipped or failed; `figures` are there even of one that
    failed, as far as it came. It is not `finished` where its process ended too early."""

    status: Status
    reason: str = ""
    seconds: float = 0.0
    figures: Mapping[str, Any] = field(default_factory=dict[str, Any])
    trace: str = ""
    finished: bool = True

    def write(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @staticmethod
    def read(file: Path) -> Outcome:
        return Outcome(**json.loads(file.read_text(encoding="utf-8")))


class Skip(Exception):
    """A section cannot be run here; the reason is its text."""


class Task:
    """What a section is given: its time, and where it tells what it finds."""

    def __init__(
        self, seconds: float, *, artifact: Path | None = None, into: Path | None = None
    ) -> None:
        """What is noted is kept in the file `into` too, for the case that this process ends."""
        self.artifact = artifact
        self.figures: dict[str, Any] = {}
        self.differences: list[str] = []
        self._start = time.monotonic()
        self._seconds = seconds
        self._into = into
        self._keep()

    @property
    def passed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start

    def has_time(self, share: float = 1.0) -> bool:
        """Whether less than this share of the time has passed."""
        return self.passed < share * self._seconds

    def note(self, name: str, figures: object) -> None:
        """Keep figures under a name, and print them."""
        self.figures[name] = figures
        print(f"  {name}: {_line(figures)}", flush=True)
        self._keep()

    def compare(self, what: str, found: object, expected: object) -> bool:
        """Whether both are equal; if not, the section fails, but goes on."""
        if found == expected:
            return True
        self.wrong(f"{what}: {_short(found)} instead of {_short(expected)}")
        return False

    def wrong(self, what: str) -> None:
        """Note that something is not as it should be."""
        print(f"  WRONG: {what}", flush=True)
        self.differences.append(what)
        self._keep()

    def outcome(self) -> Outcome:
        """Of a section that came to its end."""
        if not self.differences:
            return Outcome("ok", seconds=round(self.passed, 2), figures=self.figures)
        more = len(self.differences) - _TOLD
        reason = "; ".join(self.differences[:_TOLD]) + (f"; {more} more" if more > 0 else "")
        return self.failed(reason)

    def failed(self, reason: str, trace: str = "") -> Outcome:
        return Outcome("failed", reason, round(self.passed, 2), self.figures, trace)

    def _keep(self) -> None:
        if self._into:
            reason = "; ".join([_UNFINISHED, *self.differences[:_TOLD]])
            replace(self.failed(reason), finished=False).write(self._into)


def run_here(section: Section, task: Task) -> Outcome:
    """Run a section in this process; whatever it raises is its outcome."""
    missing = [name for name in section.needs if find_spec(name) is None]
    if missing:
        return Outcome("skipped", f"{' and '.join(missing)} is not installed")
    module, _, function = section.run.partition(":")
    try:
        getattr(import_module(module), function)(task)
    except Skip as reason:
        return Outcome("skipped", str(reason), round(task.passed, 2), task.figures)
    except Exception as error:  # one section must not keep the others from being run
        reasons = [f"{type(error).__name__}: {error}", *task.differences[:_TOLD]]
        return task.failed("; ".join(reasons), traceback.format_exc())
    return task.outcome()


def _line(figures: object) -> str:
    if isinstance(figures, Mapping):
        return ", ".join(f"{name} {_line(value)}" for name, value in figures.items())
    return f"{figures:.4g}" if isinstance(figures, float) else str(figures)


def _short(value: object) -> str:
    text = str(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
