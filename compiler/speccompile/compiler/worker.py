"""The process of one stage: ``python -m speccompile.compiler.worker``, spoken to in JSON.

Standard input holds the call. Every line written back is an event: ``report``, ``error`` (a message
for the user), ``full`` (the disk is) or ``done``. Whatever the libraries print goes to standard
error, which is kept as the stage's log. The process does not outlive the build that started it.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from speccompile.compiler.packages import missing_package
from speccompile.compiler.usage import write_usage
from speccompile.runtime.errors import SpeccompileError

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1  # linux/prctl.h


def main() -> int:
    start = time.perf_counter()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # Native code prints to descriptor 1: keep that for ourselves and hand it standard error.
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    call: dict[str, Any] = json.load(sys.stdin)
    if os.getppid() != call["parent"]:  # it died before it could be bound to us
        return 1
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
    raise SystemExit(main())
