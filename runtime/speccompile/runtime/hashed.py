"""What was hashed before: a file is not read again while it is the very one that was.

That is: the same inode with the same size and the same times of its last changes, of the content
and of the inode, of which the latter cannot be set back. Kept on this machine, in the user's cache.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from speccompile.runtime.artifact import hash_files
from speccompile.runtime.errors import ArtifactError
from speccompile.runtime.records import parse_record, record_bytes
from speccompile.runtime.user_cache import default_cache

__all__ = ["hash_unless_known", "remember"]

_SCHEMA = 1
_SETTLED_SECONDS = 2.0
"""Age from which on another change would show in a file's times, on any file system."""


@dataclass(frozen=True)
class _Seen:
    """A file as it was when it had this hash; `modified` and `changed` in nanoseconds."""

    sha256: str
    device: int
    inode: int
    size: int
    modified: int
    changed: int


@dataclass(frozen=True)
class _Known:
    """What was hashed in one folder."""

    schema: int
    files: Mapping[str, _Seen]


def hash_unless_known(
    root: Path, paths: Iterable[str], advance: Callable[[int], object] | None = None
) -> dict[str, str]:
    """As `hash_files`, which is asked for the files alone that are not what was remembered.

    These are told to `advance` at once, too.
    """
    known, found = _read(root), dict[str, str]()
    paths = list(paths)
    for path in paths:
        seen = known.get(path)
        if seen and _see(root / path, seen.sha256) == seen:
            found[path] = seen.sha256
            if advance:
                advance(seen.size)
    hashed = hash_files(root, [path for path in paths if path not in found], advance)
    return {path: found.get(path) or hashed[path] for path in paths}


def remember(root: Path, digests: Mapping[str, str], since: float) -> None:
    """Remember the `digests` of files that were hashed after the time `since`.

    Files that changed since then, or shortly before, are not remembered, and nothing is where the
    cache cannot be written: they will be hashed again.
    """
    files = {path: seen for path, value in digests.items() if (seen := _see(root / path, value))}
    latest = (since - _SETTLED_SECONDS) * 1e9
    settled = {p: s for p, s in files.items() if max(s.modified, s.changed) < latest}
    file = _file(root)
    part = file.with_name(f".{secrets.token_hex(8)}.part")
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(record_bytes(_Known(_SCHEMA, settled)))
            part.replace(file)
        finally:
            part.unlink(missing_ok=True)


def _read(root: Path) -> Mapping[str, _Seen]:
    """What is remembered; a record that cannot be read is none."""
    path = _file(root)
    try:
        known = parse_record(
            _Known, path.read_bytes(), str(path), schema=_SCHEMA, check=lambda _: None
        )
    except (OSError, ArtifactError):
        return {}
    return known.files


def _see(path: Path, digest: str) -> _Seen | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    times = found.st_mtime_ns, found.st_ctime_ns
    return _Seen(digest, found.st_dev, found.st_ino, found.st_size, *times)


def _file(root: Path) -> Path:
    name = sha256(str(root.resolve()).encode(errors="surrogateescape")).hexdigest()[:32]
    return default_cache() / "hashed" / f"{name}.json"
