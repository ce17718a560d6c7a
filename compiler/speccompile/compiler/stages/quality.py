"""quality: what an engine's precision costs, measured on the evaluation text, with the engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.quality import Quality, compare
from speccompile.compiler.stages.check import Checked
from speccompile.compiler.stages.compile import Compiled
from speccompile.compiler.stages.opened import Opened, open_lowered
from speccompile.compiler.stages.reference import Reference, chunks

__all__ = ["read_quality", "run"]

_FILE = "quality.json"


def read_quality(folder: Path) -> Quality:
    """The result of this stage."""
    return Quality(**json.loads((folder / _FILE).read_text(encoding="utf-8")))


def run(folder: Path, inputs: Mapping[str, Path], settings: Mapping[str, Any]) -> None:
    """Settings: `threads`. The inputs are the engine's `lower` and `compile` stages, `check`, its
    model's `load` and `reference` and, for a draft with a model of its own, the target's."""
    lowered, compiled, checked, loaded, reference, *target = inputs.values()
    threads = settings["threads"]
    exact = Reference(reference, Checked(loaded, checked), threads=threads)
    accepted_by = None
    if target:
        accepted_by = Reference(target[1], Checked(target[0], checked), threads=threads).logits()
    opened = open_lowered(Compiled.read(compiled).engine, lowered, threads=threads)
    quality = compare(
        _following(exact.tokens),
        _logits(opened, exact, settings["report"]),
        exact.logits(),
        accepted_by,
    )
    (folder / _FILE).write_text(json.dumps(asdict(quality), indent=1), encoding="utf-8")


def _following(windows: NDArray[np.int64]) -> Iterator[int | None]:
    for window in windows.tolist():
        yield from window[1:]
        yield None


def _logits(
    opened: Opened, exact: Reference, report: Callable[[str], None]
) -> Iterator[NDArray[np.float32]]:
    """The engine's own, in the chunks of the reference's."""
    for number, window in enumerate(exact.tokens.tolist()):
        report(f"window {number + 1} of {len(exact.tokens)} of the evaluation text")
        opened.read(() if exact.sources is None else exact.sources[number].tolist())
        for rows in chunks(window):
            yield opened.engine.step(window[rows]).copy()
