"""Sending an artifact to a registry: every file, and last the manifest that makes it one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from speccompile.runtime.artifact import open_artifact
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.registry.connection import Connection
from speccompile.runtime.registry.layers import MANIFEST_TYPE, Layer, layers_of, write_manifest
from speccompile.runtime.registry.reference import Reference

__all__ = ["Progress", "Pushed", "push"]

Progress = Callable[[str, int, int], None]
"""Told the file that is under way, and how many bytes of how many have been dealt with."""

_BLOCK = 1 << 20  # bytes


@dataclass(frozen=True)
class Pushed:
    """Where it is, with the digest of its OCI manifest; how many files were sent, and bytes."""

    reference: Reference
    identity: str
    sent: int
    files: int
    sent_bytes: int


def push(path: Path, reference: Reference, progress: Progress) -> Pushed:
    """Send the artifact in the folder `path`, after checking all of it; what the repository has is
    not sent again, so that a push that was cut goes on when it is repeated.

    Until the last request the tag means what it meant before. Raises ArtifactError for an artifact
    that is not whole, SpeccompileError where the registry refuses or cannot be reached.
    """
    if reference.tag is None or reference.digest is not None:
        raise SpeccompileError(f"{reference}: push to a tag, as in oci://registry/name:1.0")
    artifact = open_artifact(path, on_cpu=False)
    if artifact.absent:
        left_out = ", ".join(sorted(artifact.absent))
        raise SpeccompileError(f"{path}: {left_out} was left out of it; push a whole artifact")
    layers, connection = layers_of(artifact), Connection(reference)
    total, done, sent = sum(layer.size for layer in layers), 0, list[Layer]()
    for layer in layers:
        progress(layer.path, done, total)
        if not connection.has_blob(layer.digest):
            _upload(connection, artifact.root, layer, _shifted(progress, layer, done, total))
            sent.append(layer)
        done += layer.size
    manifest, config = write_manifest(artifact.manifest, layers)
    config_digest = f"sha256:{sha256(config).hexdigest()}"
    if not connection.has_blob(config_digest):
        connection.upload(config_digest, config)
    connection.put_manifest(reference.tag, MANIFEST_TYPE, manifest)
    progress("", total, total)
    pinned = replace(reference, digest=f"sha256:{sha256(manifest).hexdigest()}")
    size = sum(layer.size for layer in sent)
    return Pushed(pinned, artifact.manifest.identity, len(sent), len(layers), size)


class _Content:
    """The bytes of a file, from its start each time: a request may have to be sent twice."""

    def __init__(self, path: Path, size: int, sent: Callable[[int], None]) -> None:
        self._path, self._size, self._sent = path, size, sent

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        done = 0
        with self._path.open("rb") as file:
            while block := file.read(_BLOCK):
                yield block
                done += len(block)
                self._sent(done)


def _upload(connection: Connection, root: Path, layer: Layer, sent: Callable[[int], None]) -> None:
    try:
        # Without a length, as of an empty iterable, the body would be sent in chunks.
        content = _Content(root / layer.path, layer.size, sent) if layer.size else b""
        connection.upload(layer.digest, content)
    except OSError as error:
        raise SpeccompileError(f"{root / layer.path}: cannot be read: {error.strerror}") from error


def _shifted(progress: Progress, layer: Layer, done: int, total: int) -> Callable[[int], None]:
    return lambda sent: progress(layer.path, done + sent, total)
