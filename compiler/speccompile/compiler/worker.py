"""The process that stages are forked from: ``python -m speccompile.compiler.worker``.

To import what stages need takes longer than many a stage, so that is done once a build. Every line
of standard input is a call; it is done by a fork, so that a library that aborts or keeps its memory
takes only its stage with it. Every line written back is an event, in JSON: ``report``, ``error`` (a
message for the user), ``full`` (the disk is) or ``done`` by the stage, and ``exit`` with its exit
code. What the libraries print goes to the stage's log. No process outlives the build.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from speccompile.compiler.packages import missing_package
from speccompile.compiler.usage import write_usage
from speccompile.runtime.errors import SpeccompileError

__all__ = ["main"]

_PRELOADED = (
    "speccompile.compiler.sources.opening",
    "speccompile.compiler.lower.passes",
    "speccompile.compiler.emit",
)
"""Most stages need them, and none starts a thread of its own, as ONNX Runtime does: a fork would
lack it. (OpenBLAS ends its threads before a fork and starts them again.)"""

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main(parent: int) -> int:
    """Serve `parent` until standard input ends."""
    if not _dies_with(parent):
        return 1
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # it is the build that ends us
    warnings.filterwarnings("ignore", "This process .* is multi-threaded", DeprecationWarning)
    for module in _PRELOADED:
        with suppress(ModuleNotFoundError):  # the stage that needs it will say so
            import_module(module)
    events, server = sys.stdout, os.getpid()
    for line in sys.stdin:
        stage = os.fork()
        if not stage:
            _work_and_exit(json.loads(line), server)
        _, status = os.waitpid(stage, 0)
        _send(events, "exit", str(os.waitstatus_to_exitcode(status)))
    return 0


def _work_and_exit(call: dict[str, Any], server: int) -> None:
    """Never returns: what stands on the stack is the server's."""
    code = 1
    try:
        if _dies_with(server):
            code = _work(call)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _work(call: dict[str, Any]) -> int:
    start = time.perf_counter()
    # Native code prints to descriptors 1 and 2: keep the first for ourselves, and log both.
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    log = os.open(call["log"], os.O_WRONLY | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, file in enumerate((nothing, log, log)):
        os.dup2(file, descriptor)
    module, _, function = str(call["run"]).partition(":")
    folder = Path(call["folder"])
    inputs = {name: Path(path) for name, path in call["inputs"].items()}
    settings = dict(call["settings"], report=partial(_send, events, "report"))
    try:
        getattr(import_module(module), function)(folder, inputs, settings)
        write_usage(folder, time.perf_counter() - start)
    except (SpeccompileError, MemoryError) as error:
        _send(events, "error", str(error) or "out of memory")
    except Exception as error:
        if any(map(_is_full, _chain(error))):
            _send(events, "full", "")
        elif isinstance(error, ModuleNotFoundError) and (text := missing_package(error)):
            _send(events, "error", text)
        else:
            raise
    else:
        _send(events, "done", "")
    return 0


def _dies_with(parent: int) -> bool:
    """Have the system kill this process when `parent` dies; False if it is dead already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def _send(events: TextIO, kind: str, text: str) -> None:
    print(json.dumps({"kind": kind, "text": text}), file=events, flush=True)


def _is_full(error: BaseException) -> bool:
    """Native libraries have exceptions of their own for it: only the words are the same."""
    full = (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, OSError) and error.errno in full:
        return True
    return any(os.strerror(number) in str(error) for number in full)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


if __name__ == "__main__":
    raise SystemExit(main(int(sys.argv[1])))
