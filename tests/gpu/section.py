"""One section in a process of its own, which a library may end and a GPU's failure spoil.

python -m tests.gpu.section NAME SECONDS OUTCOME.json [ARTIFACT]
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.gpu.sections import SECTIONS, Outcome, Task, run_here

__all__ = ["run_apart", "run_command"]

_ROOT = Path(__file__).parents[2]  # where `tests` is found
_SOFT = 0.85  # of the time: then a section should come to an end by itself
_TAIL = 2000  # characters of standard error
_NOTHING = Outcome("failed", "it brought nothing", finished=False)


def run_apart(name: str, seconds: float, artifact: Path | None = None) -> Outcome:
    """Run the section `name` for at most so many seconds."""
    command = [sys.executable, "-m", "tests.gpu.section", name, str(_SOFT * seconds)]
    return run_command(command, seconds, [str(artifact.resolve())] if artifact else [])


def run_command(command: Sequence[str], seconds: float, behind: Sequence[str] = ()) -> Outcome:
    """Run a command that writes its `Outcome` to a file, whose path it is given, ahead of what
    comes `behind`."""
    with TemporaryDirectory() as folder:
        into, said = Path(folder) / "outcome.json", Path(folder) / "stderr"
        with said.open("w") as errors:
            try:
                process = subprocess.run(
                    [*command, str(into), *behind],
                    cwd=_ROOT,
                    stderr=errors,
                    timeout=seconds,
                    check=False,
                )
                ending = _ending(process.returncode)
            except subprocess.TimeoutExpired:
                ending = f"was ended after {seconds:.0f} s"
        outcome = Outcome.read(into) if into.exists() else _NOTHING
        if not ending:
            return outcome
        trace = "\n".join(filter(None, [outcome.trace, said.read_text(errors="replace")[-_TAIL:]]))
        # Libraries that fail while a process ends, behind its last result, spoil none.
        status = outcome.status if outcome.finished else "failed"
        reason = f"the process {ending}; {outcome.reason}".rstrip("; ")
        return replace(outcome, status=status, reason=reason, trace=trace)


def _ending(code: int) -> str:
    """How a process ended, unless it was well."""
    if code < 0:
        return f"ended by {signal.Signals(-code).name}"
    return f"ended with {code}" if code else ""


def main(name: str, seconds: str, into: str, artifact: str = "") -> None:
    file = Path(into)
    task = Task(float(seconds), artifact=Path(artifact) if artifact else None, into=file)
    run_here(SECTIONS[name], task).write(file)


if __name__ == "__main__":
    main(*sys.argv[1:])
