"""All cells, in turn, round by round: one process at a time, each opened anew in every round.

A round takes minutes, in which a machine's speed may drift, so what is compared are ratios to our
own plain decoding of the same round. Every other round goes through the cells backwards.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from benchmarks.peers.cells import Cell
from benchmarks.peers.peer import PeerError

__all__ = ["Sample", "run_rounds"]

_WORKERS = Path(__file__).parent / "workers"
_WARM_UP = 8  # tokens


@dataclass(frozen=True)
class Sample:
    """One prompt, continued once by one cell; `prompt` is its number."""

    cell: str
    round: int
    prompt: int
    tokens: tuple[int, ...]
    first_seconds: float
    rest_seconds: float
    memory: int
    """The most that the process had held by then, in bytes."""

    @property
    def tokens_per_second(self) -> float:
        """From the first token on."""
        return (len(self.tokens) - 1) / self.rest_seconds


class _Worker:
    """A cell's process, which has answered so far."""

    def __init__(self, cell: Cell, process: subprocess.Popen[str], log: IO[str]) -> None:
        self._cell, self._process, self._log = cell, process, log
        self._answer()

    def generate(self, prompt: Sequence[int], tokens: int) -> dict[str, Any]:
        assert self._process.stdin
        print(json.dumps({"prompt": list(prompt), "tokens": tokens}), file=self._process.stdin)
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout
        if line := self._process.stdout.readline():
            answer: dict[str, Any] = json.loads(line)
            return answer
        self._process.wait()
        self._log.seek(0)
        raise PeerError(f"{self._cell.name}: the worker ended: {self._log.read().strip()[-2000:]}")


@contextmanager
def _opened(cell: Cell, home: Path) -> Generator[_Worker]:
    words = [str(cell.peer.interpreter(home)), str(_WORKERS / cell.peer.worker)]
    with (
        tempfile.TemporaryFile("w+", errors="replace") as log,
        subprocess.Popen(
            [*words, json.dumps(cell.settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        ) as process,
    ):
        try:
            yield _Worker(cell, process, log)
        except BaseException:
            with suppress(ProcessLookupError):  # with the server that it may have started
                os.killpg(process.pid, signal.SIGKILL)
            raise


def run_rounds(
    cells: Sequence[Cell],
    prompts: Sequence[Sequence[int]],
    *,
    tokens: int,
    rounds: int,
    home: Path,
    report: Callable[[str], None],
) -> list[Sample]:
    """Let every cell continue every prompt by at most so many tokens, in every round.

    Raises PeerError where a worker fails.
    """
    samples: list[Sample] = []
    for number in range(rounds):
        for position, cell in enumerate(cells if number % 2 == 0 else reversed(cells), start=1):
            found = _run(cell, number, prompts, tokens, home)
            samples += found
            speeds = sorted(sample.tokens_per_second for sample in found)
            report(
                f"round {number + 1} of {rounds}, {position} of {len(cells)}: {cell.name}: "
                f"{speeds[len(speeds) // 2]:.1f} tokens/s"
            )
    return samples


def _run(
    cell: Cell, number: int, prompts: Sequence[Sequence[int]], tokens: int, home: Path
) -> list[Sample]:
    samples: list[Sample] = []
    with _opened(cell, home) as worker:
        worker.generate(prompts[-1], _WARM_UP)
        for index, prompt in enumerate(prompts):
            answer = worker.generate(prompt, tokens)
            if len(answer["tokens"]) < 2:
                raise PeerError(f"{cell.name}: says nothing to prompt {index + 1}; leave it out")
            said = tuple(answer["tokens"])
            times = answer["first"], answer["rest"]
            samples.append(Sample(cell.name, number, index, said, *times, answer["memory"]))
    return samples
