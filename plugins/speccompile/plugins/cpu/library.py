"""The operators for CPUs, `operators.c`, as a library that ONNX Runtime loads.

What is installed from an artifact brings the library along; from a checkout, it is compiled once by
the C compiler of the host. It needs nothing but libc.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from tempfile import TemporaryDirectory

__all__ = ["DOMAIN", "LIBRARY", "WIDTH", "CpuLibraryError", "cpu_library"]

DOMAIN = "speccompile.cpu"
"""Of the operators."""
WIDTH = 16
"""Outputs of a panel."""
LIBRARY = "operators.so"

_UNIT = "operators.c"
# Products are fused where the source says so, and nowhere else.
_OPTIONS = ("-std=c11", "-O3", "-ffp-contract=off", "-fPIC", "-fvisibility=hidden", "-shared")
_LINKING = ("-Wl,--build-id=none", "-s")


class CpuLibraryError(Exception):
    """The operators cannot be compiled; one line says why, and the way out."""


def cpu_library(cache: Path) -> Path:
    """The library, in the package or else in `cache`, where it stays. Raises CpuLibraryError."""
    packaged = _folder() / LIBRARY
    if isinstance(packaged, Path) and packaged.is_file():
        return packaged
    content = packaged.read_bytes() if packaged.is_file() else None
    path = cache / f"{_digest(content)}.so"
    if not path.is_file():
        _store(path, content)
    return path


def _store(path: Path, content: bytes | None) -> None:
    """Write the library, or compile it: all of it is there, or nothing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=path.parent) as scratch:
            new = Path(scratch) / LIBRARY
            if content is None:
                _compile(new)
            else:
                new.write_bytes(content)
            new.replace(path)
    except OSError as error:
        raise CpuLibraryError(
            f"{path}: cannot be written ({error.strerror}): let $SPECCOMPILE_CACHE name a folder "
            "that can, or install the wheel that artifacts carry"
        ) from error


def _compile(library: Path) -> None:
    compiler = os.environ.get("CC") or "cc"
    for name, text in _sources():
        library.with_name(name).write_text(text, encoding="utf-8")
    command = [compiler, *_OPTIONS, "-o", library.name, _UNIT, *_LINKING]
    try:
        done = subprocess.run(
            command, cwd=library.parent, capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise CpuLibraryError(
            f"the operators for the CPU need a C compiler, and {compiler} cannot be run "
            f"({error.strerror}): install gcc, or name another one in $CC"
        ) from error
    if done.returncode:
        first = next(iter(done.stderr.splitlines()), f"exit code {done.returncode}")
        raise CpuLibraryError(
            f"{compiler} does not compile the operators for the CPU ({first}): "
            "name another C compiler in $CC"
        )


def _digest(content: bytes | None) -> str:
    """Of the library, or of all that it is compiled from."""
    parts = (*_OPTIONS, *_LINKING, *(part for source in _sources() for part in source))
    return sha256(content or "\0".join(parts).encode()).hexdigest()[:32]


def _sources() -> Iterator[tuple[str, str]]:
    """Name and text of every file."""
    found = (file for file in _folder().iterdir() if file.name.endswith((".c", ".h")))
    for file in sorted(found, key=lambda file: file.name):
        yield file.name, file.read_text("utf-8")


def _folder() -> Traversable:
    return files("speccompile.plugins.cpu")
