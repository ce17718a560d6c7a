"""``run.pyz``: the runtime as one file, run by any Python that has numpy, tokenizers, jinja2 and
the artifact's engine."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path, PurePosixPath

__all__ = ["write_zipapp"]

# The runtime, the commands that need nothing else, and click, which parses their arguments.
_PACKAGES = ("speccompile.runtime", "speccompile.plugins", "click")
_COMMANDS = ("run", "run_options", "run_output", "options")

_MAIN = """\
import sys
from pathlib import Path

from speccompile.cli.run import main_of_archive

sys.exit(main_of_archive(Path(sys.argv[0]).resolve().parent))
"""

_DATE = (1980, 1, 1, 0, 0, 0)


def write_zipapp(path: Path) -> None:
    """Write the archive, byte for byte the same from the same sources, and make it executable.

    It is not compressed: what a compressor writes depends on the zlib that Python was built with.
    """
    with path.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            folders: set[PurePosixPath] = set()
            for name, content in sorted(_members()):
                # Python finds a namespace package in an archive only where its folder is listed.
                for folder in sorted(set(name.parents) - folders - {PurePosixPath(".")}):
                    archive.writestr(zipfile.ZipInfo(f"{folder}/", _DATE), b"")
                    folders.add(folder)
                archive.writestr(zipfile.ZipInfo(str(name), _DATE), content)
    path.chmod(0o755)


def _members() -> Iterator[tuple[PurePosixPath, bytes]]:
    yield PurePosixPath("__main__.py"), _MAIN.encode()
    for package in _PACKAGES:
        root = _folder(package)
        for file in root.rglob("*.py"):
            name = PurePosixPath(package.replace(".", "/")) / file.relative_to(root).as_posix()
            yield name, file.read_bytes()
    for command in _COMMANDS:
        yield (
            PurePosixPath(f"speccompile/cli/{command}.py"),
            (_folder("speccompile.cli") / f"{command}.py").read_bytes(),
        )


def _folder(package: str) -> Path:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(package)
    return Path(next(iter(spec.submodule_search_locations)))
