"""The files of an artifact: what they are called, and what its records say of each."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from speccompile.runtime.records import require

__all__ = [
    "MANIFEST_NAME",
    "MEASUREMENTS_NAME",
    "PARTIAL_NAME",
    "SIGNATURE_NAME",
    "UNLISTED_NAMES",
    "FileEntry",
    "check_files",
    "check_paths",
    "is_report",
]

MANIFEST_NAME = "manifest.json"
MEASUREMENTS_NAME = "measurements.json"
PARTIAL_NAME = "partial.json"
"""In an artifact only where some files are left out."""
SIGNATURE_NAME = "model.sig"
"""Of all other files. It lies beside them and may come, change and go."""
UNLISTED_NAMES = frozenset({MANIFEST_NAME, MEASUREMENTS_NAME, PARTIAL_NAME, SIGNATURE_NAME})
"""The records, which list the other files, and what signs them all."""

_REPORTS = "reports/"
_MAX_DEPTH = 16


@dataclass(frozen=True)
class FileEntry:
    """One file of the artifact; `size` in bytes, `sha256` in lower-case hexadecimal."""

    sha256: str
    size: int
    role: str


def is_report(path: str) -> bool:
    """Whether the bytes of this file are measured, so that no two builds need have the same."""
    return path.startswith(_REPORTS)


def check_files(files: Mapping[str, FileEntry]) -> None:
    """Raise ValueError unless `check_paths` takes the paths, and the hashes are hashes."""
    check_paths(files)
    for path, entry in files.items():
        is_hash = re.fullmatch("[0-9a-f]{64}", entry.sha256) is not None
        require(is_hash, f"files[{path!r}].sha256 must be 64 lower-case hexadecimal digits")


def check_paths(paths: Iterable[str]) -> None:
    """Raise ValueError unless every path is portable, stays in the artifact, and has no twin.

    Twins are different names that a case-insensitive or normalising file system holds to be one.
    """
    seen: dict[str, str] = {}
    for path in paths:
        parts = path.split("/")
        faults = {
            "has a backslash or is not printable": "\\" in path or not path.isprintable(),
            f"is nested deeper than {_MAX_DEPTH} levels": len(parts) > _MAX_DEPTH,
            "is absolute or has '.', '..' or '//'": bool({"", ".", ".."} & {*parts}),
            "is a record or signature itself": path.casefold() in UNLISTED_NAMES,
        }
        for fault, holds in faults.items():
            require(not holds, f"files[{path!r}] {fault}")
        for end in range(len(parts), 0, -1):
            part = "/".join(parts[:end])
            twin = seen.setdefault(unicodedata.normalize("NFC", part).casefold(), part)
            require(twin == part, f"files[{path!r}] differs from {twin!r} only by case")
