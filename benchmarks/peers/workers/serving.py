"""What every worker speaks: requests as lines of JSON on its input, answers on its output.

A worker is a script that the interpreter of one peer runs. It imports that peer, this file and
nothing of the project. Its first line says that the model is open, then each request

    {"prompt": [token ids], "tokens": 128}

is answered by

    {"tokens": [token ids], "first": 0.1, "rest": 1.2}

`first` is the time to the first token and `rest` that from there to the last one, in seconds. What
the peer itself prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Answer:
    tokens: list[int]
    """Without the stop token."""
    first: float
    rest: float


Generate = Callable[[Sequence[int], int], Answer]
"""Continues a prompt greedily, by at most so many tokens."""


def peak_memory(process: int | str = "self") -> int:
    """The most that a process has held in memory, in bytes."""
    for line in Path(f"/proc/{process}/status").read_text("ascii").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"no peak memory of process {process}")


def serve(
    open_model: Callable[[dict[str, Any]], Generate], memory: Callable[[], int] = peak_memory
) -> None:
    """Run a worker to the end of its input; the settings are JSON in its first argument."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    generate = open_model(json.loads(sys.argv[1]))

    def say(content: dict[str, Any]) -> None:
        print(json.dumps(content), file=answers, flush=True)

    say({"ready": True})
    for line in sys.stdin:
        request = json.loads(line)
        say(asdict(generate(request["prompt"], request["tokens"])) | {"memory": memory()})
