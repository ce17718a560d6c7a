"""Run stages: each in a process of its own, its result cached, so that a build can be resumed.

Native compilers can abort a process or keep its memory; a stage that dies that way becomes an error
with its log, and the memory of a finished stage is free again.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from speccompile.compiler.pipeline import Stage, keys
from speccompile.runtime.errors import EngineError, SpeccompileError

__all__ = ["Observer", "StageResult", "peak_memory_bytes", "run_stages"]


@dataclass(frozen=True)
class StageResult:
    """Where a stage's output lies, and what it took: seconds are 0 for one found in the cache."""

    name: str
    folder: Path
    cached: bool
    seconds: float


class Observer:
    """Is told how a build goes on; this one ignores it."""

    def started(self, stage: str, position: int, total: int) -> None:
        """`stage` begins; it is number `position` of `total`, counted from 1."""

    def reported(self, text: str) -> None:
        """The running stage says what it does, such as a download."""

    def finished(self, result: StageResult) -> None:
        """A stage is done."""


def run_stages(stages: Sequence[Stage], cache: Path, observer: Observer) -> dict[str, StageResult]:
    """Run `stages` in order, or take their results from ``cache/stages``."""
    identities = keys(stages)
    results: dict[str, StageResult] = {}
    for position, stage in enumerate(stages, start=1):
        observer.started(stage.name, position, len(stages))
        inputs = {name: results[name].folder for name in stage.inputs}
        folder = cache / "stages" / f"{stage.name.replace(' ', '-')}-{identities[stage.name]}"
        start = time.perf_counter()
        cached = folder.is_dir()
        if not cached:
            _run_into(stage, folder, inputs, cache, observer.reported)
        seconds = 0.0 if cached else time.perf_counter() - start
        results[stage.name] = StageResult(stage.name, folder, cached, seconds)
        observer.finished(results[stage.name])
    return results


def peak_memory_bytes() -> int:
    """The most memory that any one process of this build, this one included, has had resident."""
    kibibytes = max(
        resource.getrusage(who).ru_maxrss
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return kibibytes * 1024


def _run_into(
    stage: Stage,
    folder: Path,
    inputs: Mapping[str, Path],
    cache: Path,
    report: Callable[[str], None],
) -> None:
    """Fill a scratch folder, and rename it only when complete: a killed stage leaves no result."""
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}.part")
    _remove_leftovers(folder)
    try:
        scratch.mkdir(parents=True)
        call = {
            "run": stage.run,
            "folder": str(scratch),
            "inputs": {name: str(path) for name, path in inputs.items()},
            "settings": {**stage.settings, "cache": str(cache)},
        }
        _call_worker(stage.name, call, scratch.with_suffix(".log"), report)
        scratch.rename(folder)
    except OSError as error:
        raise SpeccompileError(
            f"stage {stage.name!r}: {error.strerror or error} ({scratch}); "
            "free some space or set SPECCOMPILE_CACHE to a folder that has it"
        ) from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _remove_leftovers(folder: Path) -> None:
    """What builds that were killed left of this stage; a running one's scratch folder stays."""
    for scratch in folder.parent.glob(f"{folder.name}.*.part"):
        process = scratch.name.split(".")[-2]
        if process == str(os.getpid()) or not Path("/proc", process).exists():
            shutil.rmtree(scratch, ignore_errors=True)


def _call_worker(
    name: str, call: Mapping[str, object], log: Path, report: Callable[[str], None]
) -> None:
    command = [sys.executable, "-m", "speccompile.compiler.worker"]
    failure: str | None = None
    finished = False
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        try:
            stdin, stdout = process.stdin, process.stdout
            if stdin is None or stdout is None:
                raise EngineError(f"stage {name!r}: its process has no pipes")
            stdin.write(json.dumps(call))
            stdin.close()
            for line in stdout:
                event: dict[str, str] = json.loads(line)
                if event["kind"] == "report":
                    report(event["text"])
                elif event["kind"] == "error":
                    failure = event["text"]
                else:
                    finished = True
            code = process.wait()
        except BaseException:
            process.kill()
            raise
    if failure is not None:
        log.unlink(missing_ok=True)
        raise SpeccompileError(failure)
    if not finished or code != 0:
        raise EngineError(f"stage {name!r} died ({_cause(code)}); its output is in {log}")
    log.unlink(missing_ok=True)


def _cause(code: int) -> str:
    return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
