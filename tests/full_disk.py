"""Running a command on a disk that is full, or fails, from its n-th write on."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

__all__ = ["FullDisk", "compile_full_disk"]

_SHIM = Path(__file__).with_name("full_disk.c")


@dataclass(frozen=True)
class FullDisk:
    """All below `folder`; `counter` is a file of its own."""

    library: Path
    folder: Path
    counter: Path

    def run(
        self, command: Sequence[str], room: int, *, error: int = errno.ENOSPC
    ) -> tuple[subprocess.CompletedProcess[str], int]:
        """Run where only `room` writes succeed, and the others fail with the number `error`;
        returns how many there were, failed ones included."""
        self.counter.write_bytes(struct.pack("q", room))
        environment = {
            "LD_PRELOAD": str(self.library),
            "FULL_COUNTER": str(self.counter),
            "FULL_FOLDER": str(self.folder),
            "FULL_ERROR": str(error),
        }
        done = subprocess.run(
            command,
            env=os.environ | environment,
            capture_output=True,
            text=True,
            start_new_session=True,
            timeout=120,
            check=False,
        )
        (left,) = struct.unpack("q", self.counter.read_bytes())
        return done, room - left


def compile_full_disk(folder: Path) -> Path:
    """The library that makes writes fail, in `folder`; skips where there is no C compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("needs a C compiler to make writes fail")
    library = folder / "full_disk.so"
    command = [compiler, "-O1", "-shared", "-fPIC", str(_SHIM), "-o", str(library), "-ldl"]
    subprocess.run(command, check=True, capture_output=True)
    return library
