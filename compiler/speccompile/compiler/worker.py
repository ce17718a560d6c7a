"""The process of one stage: ``python -m speccompile.compiler.worker``, spoken to in JSON.

Standard input holds the call. Every line written back is an event: ``report``, ``error`` (a message
for the user) or ``done``. Whatever the libraries print goes to standard error, which is kept as
the stage's log.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

from speccompile.runtime.errors import SpeccompileError

__all__ = ["main"]


def main() -> int:
    # Native code prints to descriptor 1: keep that for ourselves and hand it standard error.
    events = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    call: dict[str, Any] = json.load(sys.stdin)
    module, _, function = str(call["run"]).partition(":")
    inputs = {name: Path(path) for name, path in call["inputs"].items()}
    settings = dict(call["settings"], report=partial(_send, events, "report"))
    try:
        getattr(import_module(module), function)(Path(call["folder"]), inputs, settings)
    except (SpeccompileError, MemoryError) as error:
        _send(events, "error", str(error) or "out of memory")
        return 0
    _send(events, "done", "")
    return 0


def _send(events: TextIO, kind: str, text: str) -> None:
    print(json.dumps({"kind": kind, "text": text}), file=events, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
