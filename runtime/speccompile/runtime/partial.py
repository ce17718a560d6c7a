"""`partial.json`: which plans of an artifact were left where it came from.

The manifest, and with it the identity, stay those of the whole artifact. What is there is checked
as ever, what is declared absent must be absent, and anything else that is missing is an error.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from speccompile.runtime.errors import ArtifactError
from speccompile.runtime.manifest import SCHEMA_VERSION, Manifest
from speccompile.runtime.records import parse_record, record_bytes, require

__all__ = ["Partial", "absent_files", "parse_partial", "partial_of"]


@dataclass(frozen=True)
class Partial:
    """Of the artifact whose identity is `manifest`, without its `absent` folders of plans."""

    schema: int
    manifest: str
    absent: tuple[str, ...]

    def to_bytes(self) -> bytes:
        """The content of `partial.json`."""
        return record_bytes(self)


def partial_of(manifest: Manifest, absent: Collection[str]) -> Partial:
    return Partial(SCHEMA_VERSION, manifest.identity, tuple(sorted(absent)))


def parse_partial(data: bytes, where: str, manifest: Manifest) -> Partial:
    """Read what `Partial.to_bytes` wrote for the artifact of `manifest`.

    Raises ArtifactError, beginning with `where` and naming the field, for anything else.
    """

    def check(partial: Partial) -> None:
        require(partial.manifest == manifest.identity, "belongs to another artifact")
        require(bool(partial.absent), "absent is empty")
        for folder in partial.absent:
            require(folder in manifest.gpus, f"absent names {folder!r}, which are no plans")

    try:
        return parse_record(Partial, data, where, schema=SCHEMA_VERSION, check=check)
    except ArtifactError as error:
        raise ArtifactError(f"{error}; copy or pull the artifact again") from None


def absent_files(manifest: Manifest, absent: Collection[str]) -> frozenset[str]:
    """The paths of what only the `absent` plans need."""
    kept = [gpu.paths for name, gpu in manifest.gpus.items() if name not in absent]
    gone = [gpu.paths for name, gpu in manifest.gpus.items() if name in absent]
    return frozenset().union(*gone) - frozenset().union(*kept)
