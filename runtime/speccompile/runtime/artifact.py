"""Opening an artifact: nothing in it is used before all of it is known to be what was built.

Names, kinds and sizes of all files are checked before any content is hashed, so that most faults
are refused at once however large the artifact is.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from speccompile.runtime import host
from speccompile.runtime.errors import ArtifactError
from speccompile.runtime.files import (
    MANIFEST_NAME,
    MEASUREMENTS_NAME,
    PARTIAL_NAME,
    RECORD_NAMES,
    FileEntry,
    check_paths,
)
from speccompile.runtime.manifest import GpuEngines, Manifest, parse_manifest
from speccompile.runtime.measurements import Measurements, parse_measurements
from speccompile.runtime.partial import absent_files, parse_partial
from speccompile.runtime.records import MAX_RECORD_BYTES

__all__ = [
    "Artifact",
    "hash_files",
    "list_files",
    "open_artifact",
    "read_absent",
    "read_manifest",
    "read_measurements",
]

_SPECIAL_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFBLK: "a device",
    stat.S_IFCHR: "a device",
}


@dataclass(frozen=True)
class Artifact:
    """A checked artifact in the folder `root`, without its `absent` folders of plans."""

    root: Path
    manifest: Manifest
    measurements: Measurements
    absent: frozenset[str] = frozenset()

    @property
    def files(self) -> dict[str, FileEntry]:
        """What is recorded of every file that is there, but the records."""
        files = {**self.manifest.files, **self.measurements.files}
        for path in absent_files(self.manifest, self.absent):
            del files[path]
        return files

    @property
    def gpus(self) -> Mapping[str, GpuEngines]:
        """The folders of plans that are there."""
        gpus = self.manifest.gpus
        return {name: gpus[name] for name in gpus if name not in self.absent}

    def path(self, relative: str) -> Path:
        """Where the file `relative` is; raises ArtifactError for one that no record has."""
        if relative not in self.files:
            raise ArtifactError(f"{self.root}: the artifact has no file {relative!r}")
        return self.root / relative


def open_artifact(path: Path | str, *, check: bool = True, on_cpu: bool = True) -> Artifact:
    """The artifact in the folder `path`, after checking that it is whole and can run here.

    `check=False` skips only the sha256 of the files' content, and `on_cpu=False` what the engines
    for the CPU need of this host: for who may run others. Raises ArtifactError for an artifact
    that is absent, incomplete or changed, CompatibilityError for a host that lacks what it needs.
    """
    root = Path(path)
    if root.is_symlink():  # It may point elsewhere before the last file is opened.
        root = root.resolve()
    manifest = read_manifest(root)
    measurements = read_measurements(root, manifest)
    artifact = Artifact(root, manifest, measurements, read_absent(root, manifest))
    _check_listing(artifact)
    if check:
        _check_content(artifact)
    if on_cpu:
        host.check(manifest.requires)
    return artifact


def read_manifest(root: Path) -> Manifest:
    """The manifest of the artifact in `root`, of which nothing else is checked.

    Raises ArtifactError where there is no artifact, or a changed manifest.
    """
    try:
        if not root.exists():
            raise ArtifactError(f"{root} does not exist; build it with `speccompile build RECIPE`")
        if not root.is_dir():
            raise ArtifactError(f"{root} is not a speccompile artifact: it is not a folder")
    except OSError as error:
        raise _unreadable(root, MANIFEST_NAME, error) from error
    data = _read_record(root, MANIFEST_NAME)
    if data is None:
        raise ArtifactError(
            f"{root} is not a speccompile artifact: it has no {MANIFEST_NAME}; "
            "build one with `speccompile build RECIPE`"
        )
    return parse_manifest(data, str(root / MANIFEST_NAME))


def read_measurements(root: Path, manifest: Manifest) -> Measurements:
    """The measurements beside `manifest`; raises ArtifactError if absent, changed or another's."""
    data = _read_record(root, MEASUREMENTS_NAME)
    if data is None:
        raise _missing(root, MEASUREMENTS_NAME)
    return parse_measurements(data, str(root / MEASUREMENTS_NAME), manifest)


def read_absent(root: Path, manifest: Manifest) -> frozenset[str]:
    """The folders of plans that were left out; raises ArtifactError for a changed record of it."""
    data = _read_record(root, PARTIAL_NAME)
    if data is None:
        return frozenset()
    return frozenset(parse_partial(data, str(root / PARTIAL_NAME), manifest).absent)


def list_files(root: Path) -> dict[str, int]:
    """The size in bytes of every file under `root`, by sorted relative path with slashes.

    Raises ArtifactError for anything but files and folders; links are never followed.
    """
    sizes: dict[str, int] = {}
    folders = [""]
    while folders:
        folder = folders.pop()
        try:
            with os.scandir(root / folder) as entries:
                for entry in entries:
                    relative = f"{folder}{entry.name}"
                    status = entry.stat(follow_symlinks=False)
                    if stat.S_ISDIR(status.st_mode):
                        folders.append(f"{relative}/")
                    elif stat.S_ISREG(status.st_mode):
                        sizes[relative] = status.st_size
                    else:
                        raise ArtifactError(f"{root}: {relative!r} is {_kind(status)}")
        except OSError as error:
            raise _unreadable(root, folder, error) from error
    return dict(sorted(sizes.items()))


def hash_files(root: Path, paths: Iterable[str]) -> dict[str, str]:
    """The sha256 of each file in hexadecimal, computed in threads (hashing releases the GIL).

    Raises ArtifactError for a file that cannot be read.
    """
    paths = list(paths)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(paths, pool.map(partial(_sha256, root), paths), strict=True))


def _read_record(root: Path, name: str) -> bytes | None:
    """The content of a record, cut behind the limit of its size; None where there is none."""
    path = root / name
    try:
        status = path.lstat()
        if not stat.S_ISREG(status.st_mode):  # Opening a FIFO would wait for ever.
            raise ArtifactError(f"{root}: {name!r} is {_kind(status)}")
        with path.open("rb") as file:
            return file.read(MAX_RECORD_BYTES + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(root, name, error) from error


def _check_listing(artifact: Artifact) -> None:
    root, files, found = artifact.root, artifact.files, list_files(artifact.root)
    try:
        check_paths(files)  # Each record checked its own; twins may be in different ones.
    except ValueError as error:
        raise ArtifactError(f"{root}: {error}") from None
    for path in sorted(files.keys() - found.keys()):
        raise _missing(root, path)
    for path in sorted(found.keys() - files.keys() - RECORD_NAMES):
        raise ArtifactError(f"{root}: {path!r} was added after the build; remove it")
    for path, entry in files.items():
        if found[path] != entry.size:
            raise ArtifactError(
                f"{root}: {path!r} has {found[path]} bytes instead of {entry.size}; "
                "copy or build the artifact again"
            )


def _check_content(artifact: Artifact) -> None:
    root, files = artifact.root, artifact.files
    for path, digest in hash_files(root, files).items():
        if digest != files[path].sha256:
            raise ArtifactError(
                f"{root}: the content of {path!r} changed after the build; "
                "copy or build the artifact again"
            )


def _sha256(root: Path, path: str) -> str:
    try:
        with (root / path).open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise _unreadable(root, path, error) from error


def _kind(status: os.stat_result) -> str:
    return _SPECIAL_KINDS.get(stat.S_IFMT(status.st_mode), "not a file")


def _missing(root: Path, path: str) -> ArtifactError:
    return ArtifactError(f"{root}: {path!r} is missing; copy or build the artifact again")


def _unreadable(root: Path, path: str, error: OSError) -> ArtifactError:
    return ArtifactError(f"{root}: {path!r} cannot be read: {error.strerror}")
