"""Putting a finished artifact in its place: the old one or the new one is there, never a mixture.

Where the file system can, old and new change names in one step. Otherwise it takes two, each of
which survives a kill: the old artifact is renamed to a hidden sibling, and the new one into place.
The old one is removed last. `recover` undoes or finishes what a killed run left.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import shutil
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from speccompile.runtime.artifact import Artifact, list_files, open_artifact
from speccompile.runtime.errors import ArtifactError, SpeccompileError
from speccompile.runtime.files import MANIFEST_NAME
from speccompile.runtime.signatures import read_signature

__all__ = [
    "check_replaceable",
    "holds",
    "lock",
    "publish",
    "recover",
    "sibling",
    "sync_paths",
    "sync_tree",
]

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # linux/fcntl.h, linux/fs.h


def publish(staging: Path, destination: Path) -> None:
    """Move the finished artifact `staging`, on the same file system, to `destination`.

    All of it is on the disk before anything is moved. The caller holds `lock(destination)`. Raises
    SpeccompileError when `destination` is something other than an artifact or an empty folder, and
    when the disk refuses: the old artifact is then in its place, or the new one if only flushing
    its rename or removing the old one failed.
    """
    recover(destination)
    with _explained(destination, "cannot be written"):
        if not _is_artifact(staging):
            raise SpeccompileError(f"{staging}: cannot be published without its {MANIFEST_NAME}")
        check_replaceable(destination)
        sync_tree(staging)
        _exchange(staging, destination)
    with _explained(destination, "is published, but the artifact it replaced cannot be removed"):
        _discard(_aside(destination))


def recover(destination: Path) -> None:
    """Undo or finish a publication that was killed; the caller holds `lock(destination)`."""
    old = _aside(destination)
    if not os.path.lexists(old):
        return
    with _explained(destination, f"cannot be restored from {old}"):
        if _is_artifact(old) and not _is_artifact(destination):
            old.rename(destination)
            sync_paths([destination.absolute().parent])
        else:
            _discard(old)


@contextmanager
def lock(destination: Path) -> Generator[None]:
    """Hold the right to write to `destination`; raises SpeccompileError if a process has it.

    The kernel releases the lock when its holder dies. The hidden lock file stays: removing it
    would let two later processes lock two files of that name.
    """
    path = sibling(destination, "lock")
    with _explained(destination, "cannot be locked"):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        with _explained(destination, "cannot be locked"):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SpeccompileError(
                    f"{destination}: another process is writing to it; "
                    "wait until it ends or choose another destination"
                ) from None
        yield
    finally:
        os.close(descriptor)


def holds(destination: Path, artifact: Artifact) -> bool:
    """Whether this very artifact, measured and signed alike, is at `destination`, and all of it
    whole."""
    try:
        old = open_artifact(destination, on_cpu=False)
    except ArtifactError:
        return False
    alike = replace(old, root=artifact.root) == artifact
    return alike and read_signature(old.root) == read_signature(artifact.root)


def check_replaceable(destination: Path) -> None:
    """Raise SpeccompileError when this is something other than an artifact or an empty folder."""
    if destination.is_symlink() or (destination.exists() and not destination.is_dir()):
        fault = "is not a folder"
    elif destination.is_dir() and any(destination.iterdir()) and not _is_artifact(destination):
        fault = f"has files but no {MANIFEST_NAME}, so it is not an artifact"
    else:
        return
    raise SpeccompileError(f"{destination}: {fault}; remove it or choose another destination")


def _exchange(staging: Path, destination: Path) -> None:
    parents = {staging.absolute().parent, destination.absolute().parent}
    if _is_artifact(destination):
        if _swap(staging, destination):
            sync_paths(parents)
            staging.rename(_aside(destination))
            return
        destination.rename(_aside(destination))
        sync_paths(parents)
    try:
        staging.rename(destination)  # An empty folder there is replaced.
    except OSError:
        recover(destination)
        raise
    sync_paths(parents)


def _swap(one: Path, other: Path) -> bool:
    """Exchange two names in one step; tells whether kernel and file system could."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        return False
    paths = _AT_FDCWD, os.fsencode(one), _AT_FDCWD, os.fsencode(other)
    return bool(renameat2(*paths, _RENAME_EXCHANGE) == 0)


def _discard(folder: Path) -> None:
    """Remove `folder`, first its manifest: half of an artifact must not be restored as one."""
    if os.path.lexists(folder):
        (folder / MANIFEST_NAME).unlink(missing_ok=True)
        shutil.rmtree(folder)


def sync_tree(root: Path) -> None:
    """Have all of `root` on the disk."""
    files = [root / path for path in list_files(root)]
    folders = {parent for file in files for parent in file.parents if parent.is_relative_to(root)}
    sync_paths([*files, *folders])


def sync_paths(paths: Iterable[Path]) -> None:
    """Have these files and folders, though not what is in the folders, on the disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _is_artifact(folder: Path) -> bool:
    return (folder / MANIFEST_NAME).is_file()


def _aside(destination: Path) -> Path:
    return sibling(destination, "old")


def sibling(destination: Path, suffix: str) -> Path:
    """Where what belongs to `destination` lies hidden beside it, on the same file system."""
    destination = destination.absolute()
    return destination.parent / f".{destination.name}.{suffix}"


@contextmanager
def _explained(destination: Path, failure: str) -> Generator[None]:
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        way_out = "; make room, or choose another destination" if full else ""
        raise SpeccompileError(f"{destination} {failure}: {error.strerror}{way_out}") from error
