"""Run stages: each in a process of its own, its result cached, so that a build can be resumed.

Native compilers can abort a process or keep its memory; a stage that dies that way becomes an error
with its log, and the memory of a finished stage is free again.
"""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from speccompile.compiler.cache import StageCache
from speccompile.compiler.stage import Stage, keys
from speccompile.compiler.usage import Usage, read_usage
from speccompile.runtime.errors import EngineError, SpeccompileError

__all__ = ["Observer", "StageResult", "run_stages"]

_FULL = os.strerror(errno.ENOSPC)


@dataclass(frozen=True)
class StageResult:
    """Where a stage's output lies, and what it took, in this build or (`cached`) an earlier one."""

    name: str
    folder: Path
    cached: bool
    usage: Usage


class Observer:
    """Is told how a build goes on; this one ignores it."""

    def started(self, stage: str, position: int, total: int) -> None:
        """`stage` begins; it is number `position` of `total`, counted from 1."""

    def reported(self, text: str) -> None:
        """The running stage says what it does, such as a download."""

    def finished(self, result: StageResult) -> None:
        """A stage is done."""


def run_stages(
    stages: Sequence[Stage], cache: StageCache, observer: Observer
) -> dict[str, StageResult]:
    """Run `stages` in order, or take their results from the cache.

    Raises SpeccompileError with what a stage refuses, and EngineError if its process dies.
    """
    identities = keys(stages)
    results: dict[str, StageResult] = {}
    with _Worker() as worker:
        for position, stage in enumerate(stages, start=1):
            observer.started(stage.name, position, len(stages))
            name = f"{stage.name.replace(' ', '-')}-{identities[stage.name]}"
            folder = cache.find(name)
            cached = folder is not None
            if folder is None:
                inputs = {name: results[name].folder for name in stage.inputs}
                with cache.scratch(name) as scratch:
                    _run_into(scratch, stage, inputs, cache, worker, observer.reported)
                    folder = cache.keep(scratch)
            results[stage.name] = StageResult(stage.name, folder, cached, read_usage(folder))
            observer.finished(results[stage.name])
    return results


def _run_into(
    scratch: Path,
    stage: Stage,
    inputs: Mapping[str, Path],
    cache: StageCache,
    worker: _Worker,
    report: Callable[[str], None],
) -> None:
    """Have `scratch` filled; of what the process printed, only the log of one that died stays."""
    log = scratch.with_suffix(".log")
    call = {
        "run": stage.run,
        "folder": str(scratch),
        "inputs": {name: str(path) for name, path in inputs.items()},
        "settings": {**stage.settings, "cache": str(cache.root)},
        "log": str(log),
    }
    try:
        with cache.explained():
            log.touch()
        last, text, code = worker.run(call, report)
    except BaseException:
        log.unlink(missing_ok=True)
        raise
    failure: SpeccompileError | None = None
    if last == "error":
        failure = SpeccompileError(text)
    elif last == "full" or (last != "done" and _FULL in log.read_text("utf-8", "replace")):
        failure = cache.refusal(OSError(errno.ENOSPC, _FULL))
    elif last != "done" or code != 0:
        raise EngineError(f"stage {stage.name!r} died ({_cause(code)}); its output is in {log}")
    log.unlink(missing_ok=True)
    if failure is not None:
        raise failure


class _Worker:
    """The process that stages are forked from, started for the first one that is to run."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.communicate()

    def run(
        self, call: Mapping[str, object], report: Callable[[str], None]
    ) -> tuple[str, str, int]:
        """Pass the call on, then the reports back; returns the stage's last event, its kind and
        text, and its exit code."""
        process = self._process = self._process or _start_worker()
        kind = text = ""
        try:
            with suppress(BrokenPipeError):  # it died, as its exit code will tell
                print(json.dumps(call), file=process.stdin, flush=True)
            for line in process.stdout or ():
                event: dict[str, str] = json.loads(line)
                if event["kind"] == "exit":
                    return kind, text, int(event["text"])
                kind, text = event["kind"], event["text"]
                if kind == "report":
                    report(text)
        except BaseException:
            process.kill()
            process.communicate()  # until the stage, which dies with it, has closed its end too
            raise
        self._process = None  # it died itself, and the next stage takes another
        process.communicate()
        return kind, text, process.returncode


def _start_worker() -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "speccompile.compiler.worker", str(os.getpid())]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)


def _cause(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
