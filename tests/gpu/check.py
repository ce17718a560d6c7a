"""Everything that needs a GPU to be shown, in one run of a few minutes, without a network.

    make gpu-check
    python -m tests.gpu.check --report gpu.json --seconds 300 --only kernels,graphs --artifact DIR

Sections are run one after the other, each in a process of its own with a limit of its time; one
that fails does not keep the others from being run. numpy, cuda-bindings, cuda-core and NVRTC
(``pip install cuda-bindings cuda-core nvidia-cuda-nvrtc``) are needed; `graphs` and `transformers`
are skipped without a torch that has CUDA, `tensorrt` without a TensorRT for this GPU, `artifact`
unless one is given.

Exit codes: 0, 1 where a section failed, 2 for wrong arguments, 4 where there is no GPU.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from speccompile.runtime.gpus import find_gpus
from tests.gpu.report import as_report
from tests.gpu.section import run_apart
from tests.gpu.sections import SECTIONS, Outcome

__all__ = ["check", "main"]

_NO_GPU = 4
_MOST_SECONDS = 350.0

Run = Callable[[str, float, Path | None], Outcome]


def main(arguments: Sequence[str] | None = None, run: Run = run_apart) -> int:
    options = _parser().parse_args(arguments)
    found = find_gpus()
    if not found.gpus:
        print(f"gpu-check: no GPU: {found.reason}")
        return _NO_GPU
    gpu = found.gpus[0]
    print(f"{gpu.name} ({gpu.architecture}), {gpu.uuid}", flush=True)
    start = time.monotonic()
    outcomes = check(options.only, options.seconds, options.artifact, run)
    report = as_report(found, outcomes, time.monotonic() - start)
    options.report.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print(f"written to {options.report}")
    return int(any(outcome.status == "failed" for outcome in outcomes.values()))


def check(
    names: Sequence[str], seconds: float, artifact: Path | None, run: Run
) -> dict[str, Outcome]:
    """Run the sections; time that one leaves is for the others."""
    end = time.monotonic() + seconds
    outcomes: dict[str, Outcome] = {}
    for index, name in enumerate(names):
        shares = sum(SECTIONS[each].share for each in names[index:])
        limit = (end - time.monotonic()) * SECTIONS[name].share / shares
        print(f"{name} (at most {limit:.0f} s)", flush=True)
        outcome = outcomes[name] = run(name, limit, artifact)
        reason = f": {outcome.reason}" if outcome.reason else ""
        print(f"{name}: {outcome.status}{reason} ({outcome.seconds:.1f} s)", flush=True)
    return outcomes


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="gpu-check", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--report", type=Path, default=Path("gpu-check.json"), metavar="FILE")
    parser.add_argument("--seconds", type=_seconds, default=300.0, help="in all (300)")
    parser.add_argument("--only", type=_names, default=list(SECTIONS), metavar="SECTION,...")
    parser.add_argument("--artifact", type=Path, metavar="DIR", help="with plans for this GPU")
    return parser


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"{text} is not from 0 to {_MOST_SECONDS:g}")
    return value


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in SECTIONS]:
        raise argparse.ArgumentTypeError(
            f"there is no section {unknown[0]!r}, only {', '.join(SECTIONS)}"
        )
    return names


if __name__ == "__main__":
    sys.exit(main())
