from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from speccompile.compiler.usage import peak_memory_bytes, read_usage, write_usage

_PEAK = "from speccompile.compiler.usage import peak_memory_bytes; print(peak_memory_bytes())"


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_usage(tmp_path, 1.23456)
    usage = read_usage(tmp_path)
    assert usage.seconds == 1.235
    assert 10**6 < usage.peak_memory_bytes <= peak_memory_bytes()


def test_a_peak_outlasts_what_was_held_but_not_the_process() -> None:
    size = peak_memory_bytes() + 100_000_000
    block = b"x" * size
    del block
    assert peak_memory_bytes() >= size
    child = subprocess.run(
        [sys.executable, "-c", _PEAK], check=True, capture_output=True, text=True
    )
    assert int(child.stdout) < size
