"""``run.pyz``: the runtime as one file, run by any Python that has numpy, tokenizers, jinja2 and
the artifact's engine."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from speccompile.compiler.runtime_files import package_files, runtime_files, write_archive

__all__ = ["write_zipapp"]

_MAIN = """\
import sys
from pathlib import Path

from speccompile.cli.run import main_of_archive

sys.exit(main_of_archive(Path(sys.argv[0]).resolve().parent))
"""


def write_zipapp(path: Path) -> None:
    """Write the archive, byte for byte the same from the same sources, and make it executable."""
    # click parses the command's arguments; to carry it is one package less to install.
    members = [
        (PurePosixPath("__main__.py"), _MAIN.encode()),
        *runtime_files(),
        *package_files("click"),
    ]
    with path.open("wb") as file:
        file.write(b"#!/usr/bin/env python3\n")
        write_archive(file, sorted(members))
    path.chmod(0o755)
