"""Opening an artifact: nothing in it is used before all of it is known to be what was built.

Names, kinds and sizes of all files are checked before any content is hashed, so that most faults
are refused at once however large the artifact is.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping
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
    UNLISTED_NAMES,
    FileEntry,
    check_paths,
)
from speccompile.runtime.manifest import GpuEngines, Manifest, parse_manifest
from speccompile.runtime.measurements import Measurements, parse_measurements
from speccompile.runtime.partial import absent_files, parse_partial
from speccompile.runtime.records import MAX_RECORD_BYTES
from speccompile.runtime.signatures import verify_signature

__all__ = [
    "Artifact",
    "Hasher",
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


_CHUNK_BYTES = 1 << 18

Hasher = Callable[[Path, Iterable[str]], Mapping[str, str]]
"""`hash_files`, or what knows the sha256 of files without reading them all."""


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

    @property
    def digests(self) -> dict[str, str]:
        """The sha256 of every file, the records and those left out too: what a signature signs."""
        listed = {**self.manifest.files, **self.measurements.files}
        return {
            MANIFEST_NAME: self.manifest.identity,
            MEASUREMENTS_NAME: hashlib.sha256(self.measurements.to_bytes()).hexdigest(),
            **{path: entry.sha256 for path, entry in listed.items()},
        }

    def path(self, relative: str) -> Path:
        """Where the file `relative` is; raises ArtifactError for one that no record has."""
        if relative not in self.files:
            raise ArtifactError(f"{self.root}: the artifact has no file {relative!r}")
        return self.root / relative


def open_artifact(
    path: Path | str,
    *,
    check: bool = True,
    on_cpu: bool = True,
    trusted: Path | None = None,
    hasher: Hasher | None = None,
) -> Artifact:
    """The artifact in the folder `path`, after checking that it is whole and can run here.

    `check=False` skips only the sha256 of the files' content, and `on_cpu=False` what the engines
    for the CPU need of this host: for who may run others. With `trusted`, a PEM file of a public
    key or of certificates, it must be signed: `verify_signature`. `hasher` stands for `hash_files`.

    Raises ArtifactError for an artifact that is absent, incomplete or changed, SignatureError for
    one that is not signed so, CompatibilityError for a host that lacks what it needs.
    """
    root = Path(path)
    if root.is_symlink():  # It may point elsewhere before the last file is opened.
        root = root.resolve()
    manifest = read_manifest(root)
    measurements = read_measurements(root, manifest)
    artifact = Artifact(root, manifest, measurements, read_absent(root, manifest))
    _check_listing(artifact)
    if trusted is not None:
        verify_signature(root, artifact.digests, trusted)
    if check:
        _check_content(artifact, hasher or hash_files)
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


def hash_files(
    root: Path, paths: Iterable[str], advance: Callable[[int], object] | None = None
) -> dict[str, str]:
    """The sha256 of each file in hexadecimal, computed in threads (hashing releases the GIL).

    They tell `advance` of every so many bytes that they have hashed. Raises ArtifactError for a
    file that cannot be read.
    """
    paths = list(paths)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        return dict(zip(paths, pool.map(partial(_sha256, root, advance), paths), strict=True))


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
    for path in sorted(found.keys() - files.keys() - UNLISTED_NAMES):
        raise ArtifactError(f"{root}: {path!r} was added after the build; remove it")
    for path, entry in files.items():
        if found[path] != entry.size:
            raise ArtifactError(
                f"{root}: {path!r} has {found[path]} bytes instead of {entry.size}; "
                "copy or build the artifact again"
            )


def _check_content(artifact: Artifact, hasher: Hasher) -> None:
    root, files = artifact.root, artifact.files
    for path, digest in hasher(root, files).items():
        if digest != files[path].sha256:
            raise ArtifactError(
                f"{root}: the content of {path!r} changed after the build; "
                "copy or build the artifact again"
            )


def _sha256(root: Path, advance: Callable[[int], object] | None, path: str) -> str:
    digest, chunk = hashlib.sha256(), memoryview(bytearray(_CHUNK_BYTES))
    try:
        with (root / path).open("rb", buffering=0) as file:
            while count := file.readinto(chunk):
                digest.update(chunk[:count])
                if advance:
                    advance(count)
        return digest.hexdigest()
    except OSError as error:
        raise _unreadable(root, path, error) from error


def _kind(status: os.stat_result) -> str:
    return _SPECIAL_KINDS.get(stat.S_IFMT(status.st_mode), "not a file")


def _missing(root: Path, path: str) -> ArtifactError:
    return ArtifactError(f"{root}: {path!r} is missing; copy or build the artifact again")


def _unreadable(root: Path, path: str, error: OSError) -> ArtifactError:
    return ArtifactError(f"{root}: {path!r} cannot be read: {error.strerror}")
