"""Marks: plans that computed the right thing on one GPU, with one driver, by one runtime.

Plans are built where they cannot run. Which of them were tested where they do is kept on that
machine, in the user's cache: another GPU, driver, artifact or version of ours has to be tested
again.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Self

from speccompile.runtime.errors import ArtifactError, SpeccompileError
from speccompile.runtime.gpus import Driver, Gpu
from speccompile.runtime.manifest import Manifest
from speccompile.runtime.records import parse_record, record_bytes, require
from speccompile.runtime.user_cache import default_cache

__all__ = ["Mark", "Subject", "any_mark", "find_mark", "remove_mark", "write_mark"]

_SCHEMA = 1
_UNKNOWN = "unknown"


@dataclass(frozen=True)
class Subject:
    """What a mark is of: the plans in `folder` of the artifact `identity`, on the GPU with the UUID
    `gpu`, under a `driver`, by a version of our `runtime`."""

    identity: str
    folder: str
    gpu: str
    driver: str
    runtime: str

    @classmethod
    def of(cls, manifest: Manifest, folder: str, gpu: Gpu, driver: Driver | None) -> Self:
        known = driver and (driver.version or f"of CUDA {driver.cuda}")
        return cls(manifest.identity, folder, gpu.uuid, known or _UNKNOWN, _version(manifest))

    @property
    def file(self) -> str:
        parts = (self.identity, self.folder, self.gpu, self.driver, self.runtime)
        digest = sha256("\0".join(parts).encode(errors="surrogatepass")).hexdigest()
        return f"{_beginning(self.identity)}{digest[:32]}.json"


@dataclass(frozen=True)
class Mark:
    """The plans of these `capacities` passed their self-test at `date`, with such figures."""

    schema: int
    subject: Subject
    capacities: tuple[int, ...]
    date: str
    figures: Mapping[str, object]


def any_mark(manifest: Manifest) -> bool:
    """Whether anything of the artifact is marked: if not, its GPUs need not be looked for."""
    with suppress(OSError):
        return any(_folder().glob(f"{_beginning(manifest.identity)}*.json"))
    return False


def find_mark(subject: Subject) -> Mark | None:
    """The mark of the very subject; one that cannot be read is none."""
    path = _folder() / subject.file
    try:
        mark = parse_record(Mark, path.read_bytes(), str(path), schema=_SCHEMA, check=_check)
    except (OSError, ArtifactError):
        return None
    return mark if mark.subject == subject else None


def write_mark(
    subject: Subject, capacities: tuple[int, ...], date: str, figures: Mapping[str, object]
) -> Mark:
    """Mark a subject, in one step. Raises SpeccompileError where the cache cannot be written."""
    mark = Mark(_SCHEMA, subject, capacities, date, figures)
    folder = _folder()
    part = folder / f".{secrets.token_hex(8)}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(record_bytes(mark))
            part.replace(folder / subject.file)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise _refusal(folder, error) from error
    return mark


def remove_mark(subject: Subject) -> None:
    """Take a mark back, if there is one. Raises SpeccompileError where that is not allowed."""
    folder = _folder()
    try:
        (folder / subject.file).unlink(missing_ok=True)
    except NotADirectoryError:  # nor is there a mark in it
        return
    except OSError as error:
        raise _refusal(folder, error) from error


def _check(mark: Mark) -> None:
    require(bool(mark.capacities), "capacities is empty")


def _folder() -> Path:
    return default_cache() / "verified"


def _beginning(identity: str) -> str:
    return f"{identity[:32]}-"


def _version(manifest: Manifest) -> str:
    """Ours; the archive of an artifact has no metadata, and is of the version that built both."""
    try:
        return metadata.version("speccompile")
    except metadata.PackageNotFoundError:
        return manifest.compiler_version


def _refusal(folder: Path, error: OSError) -> SpeccompileError:
    return SpeccompileError(
        f"{folder}: {error.strerror or error}; set SPECCOMPILE_CACHE to a folder that may be "
        "written to"
    )
