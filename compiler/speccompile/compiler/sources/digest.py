"""The identity of weights: what a recipe pins and an artifact records."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from speccompile.compiler.sources.checkpoint import SourceError

__all__ = ["file_sha256", "verified_sha256"]


def file_sha256(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise SourceError(f"{path}: cannot be read ({error.strerror})") from error


def verified_sha256(source: str, files: Sequence[Path], *, expected: str | None) -> str:
    """Digest weights as `Provenance.sha256` defines.

    Raises SourceError if they have not the `expected` digest, or cannot be read.
    """
    digests = [(file_sha256(path), path.name) for path in files]
    if len(digests) == 1:
        found = digests[0][0]
    else:
        lines = "".join(sorted(f"{digest}  {name}\n" for digest, name in digests))
        found = hashlib.sha256(lines.encode()).hexdigest()
    if expected is not None and found != expected:
        raise SourceError(
            f"{source}: the weights have sha256 {found}, but {expected} is expected; "
            "fetch them again, or correct the pin if the change is intended"
        )
    return found
