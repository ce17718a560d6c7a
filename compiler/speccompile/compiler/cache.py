"""The cache: downloads, and the results of finished stages under the hash of all that made them.

``CACHE/stages/NAME-KEY`` is a finished result, ``NAME-KEY.TOKEN.part`` one in the making, and
``NAME-KEY.TOKEN.log`` what its process printed. Whoever uses or fills a folder holds a shared lock
on it, and who removes it an exclusive one. The kernel ends the locks of a process that dies, so
what a killed build left is told from what a running one needs without looking at process ids,
which are given out again. When a result was last used is its folder's modification time.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import shutil
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from speccompile.compiler.lease import lease, lease_alone
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.publish import sync_tree
from speccompile.runtime.user_cache import default_cache

__all__ = ["CacheError", "Entry", "StageCache", "cache_limit", "default_cache", "parse_size"]

_DEFAULT_LIMIT = 20 * 10**9  # bytes
_UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_LOG_SECONDS = 7 * 24 * 3600
"""How long the log of a stage that died is kept: its user was told where it lies."""


class CacheError(SpeccompileError):
    """A setting of the cache is wrong, or something else is using it."""

    exit_code = 2


def cache_limit() -> int:
    """Bytes of stage results to keep after a build: $SPECCOMPILE_CACHE_LIMIT, else 20 GB."""
    text = os.environ.get("SPECCOMPILE_CACHE_LIMIT")
    if not text:
        return _DEFAULT_LIMIT
    try:
        return parse_size(text)
    except ValueError as error:
        raise CacheError(f"SPECCOMPILE_CACHE_LIMIT is {text!r}; {error}") from None


def parse_size(text: str) -> int:
    """Bytes of ``20GB`` or ``1.5 MB``, in powers of 1000, or of ``0``; else raises ValueError."""
    form = re.fullmatch(r"(\d+(?:\.\d+)?) ?([KMGT]?B)", text, re.ASCII | re.IGNORECASE)
    if form:
        return round(float(form[1]) * _UNITS[form[2].upper()])
    if text == "0":
        return 0
    raise ValueError("it should be a size such as 20GB or 500MB, or 0")


@dataclass(frozen=True)
class Entry:
    """A finished result or a download: `size` in bytes, `used` in seconds since the epoch."""

    path: Path
    size: int
    used: float

    @property
    def stage(self) -> str:
        return self.path.name.rpartition("-")[0]


class StageCache:
    """The cache of one build: what it found or kept stays at least until the ``with`` block ends.

    A block that ends without an error removes the results used longest ago until the rest fits
    into `limit` bytes. Any number of builds may share the folder `root`, which is made absolute.
    Raises SpeccompileError where it cannot be written.
    """

    def __init__(self, root: Path, limit: int) -> None:
        self.root = root.absolute()
        self.limit = limit
        self._stages = self.root / "stages"
        self._leases: list[int] = []

    def __enter__(self) -> Self:
        with self.explained():
            self._stages.mkdir(parents=True, exist_ok=True)
            self._lease(self.root)
            self._sweep(time.time() - _LOG_SECONDS)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: object
    ) -> None:
        for descriptor in self._leases:
            os.close(descriptor)
        self._leases.clear()
        if kind is None:  # a build that failed will be resumed
            self._evict()

    @contextmanager
    def explained(self) -> Generator[None]:
        """Raise what the system refuses in this block as `refusal`."""
        try:
            yield
        except OSError as error:
            raise self.refusal(error) from error

    def refusal(self, error: OSError) -> SpeccompileError:
        """What the user is told, with the way out."""
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            way_out = "free some space, for example with `speccompile cache clear`, or set"
        else:
            way_out = "set"
        return SpeccompileError(
            f"{self.root}: {error.strerror or error}; {way_out} SPECCOMPILE_CACHE to a folder "
            "that has room and may be written to"
        )

    def find(self, name: str) -> Path | None:
        """The folder of the result `name`, from now on in use by this build."""
        folder = self._stages / name
        with self.explained():
            if not self._lease(folder):
                return None
            with suppress(OSError):  # it may be another user's; only its age is lost
                os.utime(folder)
        return folder

    @contextmanager
    def scratch(self, name: str) -> Generator[Path]:
        """An empty folder in which to make the result `name`: gone again unless it was kept."""
        with self.explained():
            folder, descriptor = self._new_scratch(name)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)

    def keep(self, scratch: Path) -> Path:
        """Give a filled scratch folder its name; where another build was faster, take its result.

        Everything is on the disk before: what has the name is whole, even after a loss of power.
        """
        folder = scratch.with_name(scratch.name.rsplit(".", 2)[0])
        with self.explained():
            sync_tree(scratch)
        while True:
            with self.explained():
                try:
                    scratch.rename(folder)
                except OSError as error:
                    if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                        raise
            if self.find(folder.name):
                return folder

    def results(self) -> list[Entry]:
        """Every finished result, the one used last first."""
        return _entries(path for path in _children(self._stages) if path.suffix != ".part")

    def downloads(self) -> list[Entry]:
        """What was fetched, the newest first."""
        return _entries(_children(self.root / "downloads"))

    def remove_results(self, before: float) -> list[Entry]:
        """Remove the results last used before then, unless a build uses them; returns which.

        What killed builds left goes too, and the logs of stages that died before then.
        """
        with self.explained():
            self._sweep(before)
            old = [entry for entry in self.results() if entry.used < before]
            return [entry for entry in old if self._remove(entry.path)]

    def remove_downloads(self, before: float) -> list[Entry]:
        """Remove what was fetched before then; raises CacheError while a build may be using it."""
        alone = lease_alone(self.root)
        if alone is None and self.root.exists():
            raise CacheError(f"{self.root}: a build is using it; wait until it ends")
        try:
            removed = [entry for entry in self.downloads() if entry.used < before]
            with self.explained():
                for entry in removed:
                    shutil.rmtree(entry.path)
        finally:
            if alone is not None:
                os.close(alone)
        return removed

    def _lease(self, folder: Path) -> bool:
        descriptor = lease(folder)
        if descriptor is not None:
            self._leases.append(descriptor)
        return descriptor is not None

    def _new_scratch(self, name: str) -> tuple[Path, int]:
        while True:
            folder = self._part(name)
            folder.mkdir()
            descriptor = lease(folder)
            if descriptor is not None:  # else it was swept before it was leased
                return folder, descriptor

    def _part(self, name: str) -> Path:
        return self._stages / f"{name}.{secrets.token_hex(4)}.part"

    def _sweep(self, logs_before: float) -> None:
        for part in self._stages.glob("*.part"):
            if self._remove(part):
                part.with_suffix(".log").unlink(missing_ok=True)
        for log in self._stages.glob("*.log"):
            if _modified(log) < logs_before and not log.with_suffix(".part").exists():
                log.unlink(missing_ok=True)

    def _evict(self) -> None:
        with self.explained():
            results = self.results()
        excess = sum(entry.size for entry in results) - self.limit
        for entry in reversed(results):
            # Some results are empty, and none is kept under a limit of 0.
            if (excess > 0 or self.limit == 0) and self._remove(entry.path):
                excess -= entry.size

    def _remove(self, folder: Path) -> bool:
        """Remove a folder that nobody uses, and tell so; one that is refused to us stays."""
        alone = lease_alone(folder)
        if alone is None:
            return False
        try:
            # Its name goes first: half of a result is none.
            doomed = folder if folder.suffix == ".part" else self._part(folder.name)
            folder.rename(doomed)
            shutil.rmtree(doomed)
        except OSError:
            return False
        finally:
            os.close(alone)
        return True


def _children(folder: Path) -> list[Path]:
    return list(folder.iterdir()) if folder.is_dir() else []


def _entries(paths: Iterable[Path]) -> list[Entry]:
    entries = (Entry(path, _size(path), _modified(path)) for path in paths if path.is_dir())
    return sorted(entries, key=lambda entry: entry.used, reverse=True)


def _size(folder: Path) -> int:
    """Of the files in it, as far as nobody is removing them."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                total += Path(parent, name).lstat().st_size
    return total


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
