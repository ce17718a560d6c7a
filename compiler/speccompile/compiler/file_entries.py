"""What the records of an artifact say of its files, read off the files themselves."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path, PurePosixPath

from speccompile.runtime.artifact import hash_files, list_files
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.files import UNLISTED_NAMES, FileEntry, check_paths

__all__ = ["hash_tree"]


def hash_tree(
    root: Path, roles: Mapping[str, str], *, listed: Collection[str] = ()
) -> dict[str, FileEntry]:
    """A record's `files`: all files under `root` but the records and those already `listed`.

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
