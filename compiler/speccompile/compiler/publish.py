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
from collections.abc import Collection, Generator, Iterable, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from speccompile.runtime.artifact import hash_files, list_files
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.files import MANIFEST_NAME, UNLISTED_NAMES, FileEntry, check_paths

__all__ = ["hash_tree", "lock", "publish", "recover", "sync", "sync_tree"]

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
        _check_replaceable(destination)
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
            sync([destination.absolute().parent])
        else:
            _discard(old)


@contextmanager
def lock(destination: Path) -> Generator[None]:
    """Hold the right to write to `destination`; raises SpeccompileError if a process has it.

    The kernel releases the lock when its holder dies. The hidden lock file stays: removing it
    would let two later processes lock two files of that name.
    """
    path = _sibling(destination, "lock")
    with _explained(destination, "cannot be locked"):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        with _explained(destination, "cannot be locked"):
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SpeccompileError(
                    f"{destination}: another build is writing to it; "
                    "wait until it ends or choose another destination"
                ) from None
        yield
    finally:
        os.close(descriptor)


def hash_tree(
    root: Path, roles: Mapping[str, str], *, listed: Collection[str] = ()
) -> dict[str, FileEntry]:
    """A record's `files`: all files under `root` but `UNLISTED_NAMES` and those already
    `listed`.

    `roles` maps a relative path, or a folder for all that is in it, to a role; the longest path
    that fits a file counts. Raises SpeccompileError for a file that has none or that no artifact
    may have.
    """
    sizes = {path: size for path, size in list_files(root).items() if path not in UNLISTED_NAMES}
    try:
        check_paths(sizes)
    except ValueError as error:
        raise SpeccompileError(f"{root}: {error}; rename it") from None
    sizes = {path: size for path, size in sizes.items() if path not in listed}
    of_file = {path: _role(root, path, roles) for path in sizes}
    digests = hash_files(root, sizes)
    return {path: FileEntry(digests[path], size, of_file[path]) for path, size in sizes.items()}


def _role(root: Path, path: str, roles: Mapping[str, str]) -> str:
    for candidate in (path, *map(str, PurePosixPath(path).parents)):
        if candidate in roles:
            return roles[candidate]
    raise SpeccompileError(f"{root}: {path!r} has no role in the artifact; give it one or leave it")


def _check_replaceable(destination: Path) -> None:
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
            sync(parents)
            staging.rename(_aside(destination))
            return
        destination.rename(_aside(destination))
        sync(parents)
    try:
        staging.rename(destination)  # An empty folder there is replaced.
    except OSError:
        recover(destination)
        raise
    sync(parents)


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
    sync([*files, *folders])


def sync(paths: Iterable[Path]) -> None:
    """Have files, and the names in folders, on the disk."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _is_artifact(folder: Path) -> bool:
    return (folder / MANIFEST_NAME).is_file()


def _aside(destination: Path) -> Path:
    return _sibling(destination, "old")


def _sibling(destination: Path, suffix: str) -> Path:
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
