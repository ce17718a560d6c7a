"""An artifact's plans on this GPU against its engines for the CPU, on the prompts that ship."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from speccompile.cli.prompts import read_prompts
from speccompile.runtime.errors import CompatibilityError
from speccompile.runtime.gpus import find_gpus
from speccompile.runtime.placement import CPU
from speccompile.runtime.request import Request
from speccompile.runtime.runner import Runner
from tests.gpu.sections import Skip, Task
from tests.gpu.texts import same_text

__all__ = ["run"]

_PROMPTS, _TOKENS, _PROPOSALS = 8, 48, 4
_TIE = 2e-2
"""Plans have fp16 where the engines for the CPU have fp32, and TensorRT sums in fp16 too."""


def run(task: Task) -> None:
    if task.artifact is None:
        raise Skip("none was given; --artifact DIR")
    runner = Runner.open(task.artifact, on=CPU)
    with closing(_on_gpu(task.artifact, runner)) as plans:
        target = runner.engine("target")
        draft = "model" if "draft" in plans.roles else "none"

        def rows(tokens: Sequence[int]) -> NDArray[np.float32]:
            target.rollback(0)
            return target.step(tokens).copy()

        for number, text in enumerate(read_prompts()[:_PROMPTS], start=1):
            if not task.has_time(0.85):
                break
            prompt = runner.encode(text)
            plain = Request(_TOKENS, draft_length=0)
            expected = list(runner.session("none").generate(prompt, plain))
            for kind, length in (("none", 0), (draft, _PROPOSALS)):
                session = plans.session(kind)
                found = list(session.generate(prompt, Request(_TOKENS, draft_length=length)))
                what, statistics = f"prompt {number}, K = {length}", session.statistics
                common = same_text(task, what, found, expected, prompt, rows, _TIE)
                figures: dict[str, object] = {
                    "tokens_per_second": round(statistics.tokens_per_second, 1),
                    "accepted": round(statistics.acceptance, 3),
                    "tokens_as_cpu": common,
                }
                task.note(what, figures)


def _on_gpu(artifact: Path, runner: Runner) -> Runner:
    """The same artifact on its plans for this GPU, verified or not."""
    architecture, offered = find_gpus().gpus[0].architecture, runner.manifest.gpus
    fitting = (name for name, engines in offered.items() if engines.architecture == architecture)
    folder = next(fitting, None)
    if folder is None:
        raise Skip(f"it has plans for {', '.join(offered) or 'no GPU'}, not for {architecture}")
    try:
        return Runner.open(artifact, on=folder)
    except CompatibilityError as error:
        raise Skip(str(error)) from error
