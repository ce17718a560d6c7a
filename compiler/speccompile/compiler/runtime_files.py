"""What an artifact carries of us: the runtime, and the command that needs nothing else.

`run.pyz` and the wheel are these files in two wrappings.
"""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import IO

from speccompile.plugins.cpu.library import LIBRARY, CpuLibraryError, cpu_library
from speccompile.runtime.user_cache import default_cache

__all__ = ["package_files", "runtime_files", "write_archive"]

_PACKAGES = ("speccompile.runtime", "speccompile.plugins")
_COMMANDS = ("run", "run_options", "run_output", "options")

_DATE = (1980, 1, 1, 0, 0, 0)


def runtime_files() -> Iterator[tuple[PurePosixPath, bytes]]:
    """Every file with its path below a folder of ``sys.path``."""
    for package in _PACKAGES:
        yield from package_files(package)
    yield from _operators()
    for command in _COMMANDS:
        file = _folder("speccompile.cli") / f"{command}.py"
        yield PurePosixPath("speccompile/cli") / file.name, file.read_bytes()


def package_files(package: str) -> Iterator[tuple[PurePosixPath, bytes]]:
    """Those of an installed package, data included, as `runtime_files` gives them."""
    root = _folder(package)
    for file in root.rglob("*"):
        if file.is_file() and file.suffix not in (".pyc", ".so"):
            name = PurePosixPath(package.replace(".", "/")) / file.relative_to(root).as_posix()
            yield name, file.read_bytes()


def _operators() -> Iterator[tuple[PurePosixPath, bytes]]:
    """Those for the CPU, compiled: hosts that run artifacts need no compiler. A host without one
    builds for OpenVINO alone, which does not use them."""
    with suppress(CpuLibraryError):
        library = cpu_library(default_cache() / "operators")
        yield PurePosixPath("speccompile/plugins/cpu") / LIBRARY, library.read_bytes()


def write_archive(file: IO[bytes], members: Iterable[tuple[PurePosixPath, bytes]]) -> None:
    """Write a zip that Python can import from, byte for byte the same from the same members.

    It is not compressed: what a compressor writes depends on the zlib that Python was built with.
    """
    with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        folders: set[PurePosixPath] = set()
        for name, content in members:
            # Python finds a namespace package in an archive only where its folder is listed.
            for folder in sorted(set(name.parents) - folders - {PurePosixPath(".")}):
                archive.writestr(zipfile.ZipInfo(f"{folder}/", _DATE), b"")
                folders.add(folder)
            archive.writestr(zipfile.ZipInfo(str(name), _DATE), content)


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(package)
    return Path(next(iter(spec.submodule_search_locations)))
