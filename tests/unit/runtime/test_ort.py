"""That ONNX Runtime sends nothing: its uploader is a thread, which is there or not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_THREADS = Path("/proc/self/task")
_PROGRAM = f"""
import numpy, pathlib
threads = lambda: len(list(pathlib.Path("{_THREADS}").iterdir()))
before = threads()
import {{module}}
print(threads() - before)
"""


def threads_of(module: str, **environment: str) -> int:
    """Those that importing it starts."""
    known = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    program = _PROGRAM.format(module=module)
    command = [sys.executable, "-c", program]
    return int(subprocess.check_output(command, env={**known, **environment}, text=True))


@pytest.mark.skipif(not _THREADS.exists(), reason="threads are counted in /proc")
def test_importing_it_starts_no_uploader() -> None:
    if not threads_of("onnxruntime"):
        pytest.skip("this build of ONNX Runtime has no telemetry")
    ours = "speccompile.runtime.engines.onnxruntime"
    assert threads_of(ours) == 0
    assert threads_of(ours, ORT_DISABLE_TELEMETRY="0") > 0  # who sets it is obeyed
