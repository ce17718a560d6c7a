"""Fetching an artifact from a registry: all of it is there and checked before it has its name.

What arrives is put together in a hidden folder beside the destination, which stays when the
connection is lost or the process killed, and from which the next pull goes on.
"""

from __future__ import annotations

import errno
import shutil
import time
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path

from speccompile.runtime.artifact import (
    Artifact,
    hash_files,
    list_files,
    open_artifact,
    read_manifest,
    read_measurements,
)
from speccompile.runtime.errors import ArtifactError, SpeccompileError
from speccompile.runtime.files import PARTIAL_NAME, SIGNATURE_NAME
from speccompile.runtime.gpus import best_gpu, find_gpus, gpu_needs
from speccompile.runtime.manifest import Manifest
from speccompile.runtime.measurements import Measurements
from speccompile.runtime.partial import partial_of
from speccompile.runtime.publish import check_replaceable, holds, lock, publish, recover, sibling
from speccompile.runtime.records import MAX_RECORD_BYTES
from speccompile.runtime.registry.connection import Connection, ConnectionLost
from speccompile.runtime.registry.layers import MANIFEST_TYPE, RECORDS, Layer, parse_layers
from speccompile.runtime.registry.push import Progress
from speccompile.runtime.registry.reference import Reference
from speccompile.runtime.signatures import verify_signature

__all__ = ["Pulled", "lacking_plans", "pull"]

_ATTEMPTS = 3  # in a row that bring nothing


@dataclass(frozen=True)
class Pulled:
    """What is in the destination now; `changed` is False where it was there before.

    `left_out` maps folders of plans to what this host lacks to run them.
    """

    artifact: Artifact
    changed: bool
    left_out: Mapping[str, str]


def lacking_plans(manifest: Manifest) -> dict[str, str]:
    """The folders of plans that cannot run on this host, with what each lacks."""
    if not manifest.gpus:
        return {}
    found, lacking = find_gpus(), dict[str, str]()
    for folder, plans in manifest.gpus.items():
        needs = gpu_needs(plans, best_gpu(plans, found), found.driver)
        if lacks := [need.what for need in needs if not need.met]:
            lacking[folder] = ", ".join(lacks)
    return lacking


def pull(
    reference: Reference,
    destination: Path,
    progress: Progress,
    *,
    runnable_only: bool = False,
    trusted: Path | None = None,
) -> Pulled:
    """Fetch what `reference` means into the folder `destination`, in place of an older artifact.

    `runnable_only` leaves out the plans for GPUs that `lacking_plans` tells of; engines for the CPU
    are what plans are tested against, and always come. With `trusted`, a PEM file, what is not
    signed so (`verify_signature`) is refused before any of its files but the records is fetched.

    Raises ArtifactError where a file is not what the artifact's records say, with nothing left of
    it, and SpeccompileError where registry or disk refuse. The old artifact is in its place then.
    """
    version = reference.version
    with lock(destination):
        recover(destination)
        check_replaceable(destination)
        connection, staging = Connection(reference), sibling(destination, "pull")
        data = connection.get_manifest(version, MANIFEST_TYPE)
        if reference.digest and f"sha256:{sha256(data).hexdigest()}" != reference.digest:
            raise ArtifactError(f"{reference}: the registry sent another manifest")
        layers = parse_layers(data, str(reference))
        with _cleared(destination, staging):
            _prepare(staging, layers)
            fetch = _Fetch(reference, connection, staging, progress, layers)
            manifest, measurements = fetch.records()
            left_out = lacking_plans(manifest) if runnable_only else {}
            artifact = Artifact(staging, manifest, measurements, frozenset(left_out))
            if trusted is not None:
                verify_signature(staging, artifact.digests, trusted)
            changed = not holds(destination, artifact)
            if changed:
                fetch.files(artifact)
                open_artifact(staging, check=False, on_cpu=False)
                publish(staging, destination)
            else:
                shutil.rmtree(staging)
        return Pulled(replace(artifact, root=destination), changed, left_out)


class _Fetch:
    """Files of one artifact, into the folder `staging`."""

    def __init__(
        self,
        reference: Reference,
        connection: Connection,
        staging: Path,
        progress: Progress,
        layers: Mapping[str, Layer],
    ) -> None:
        self._reference, self._connection, self._staging = reference, connection, staging
        self._progress, self._layers = progress, layers
        self._done = self._total = 0

    def records(self) -> tuple[Manifest, Measurements]:
        """What the artifact says of itself, once the registry is shown to have just that."""
        own = [name for name in (*RECORDS, SIGNATURE_NAME) if name in self._layers]
        for name in own:
            if self._layers[name].size > MAX_RECORD_BYTES:
                raise self._unfit(f"{name} is too large")
            self._fetch(self._layers[name])
        manifest = read_manifest(self._staging)
        measurements = read_measurements(self._staging, manifest)
        files = {**manifest.files, **measurements.files}
        for path in sorted(files.keys() ^ (self._layers.keys() - {*own})):
            raise self._unfit(f"{path!r} is {'not in it' if path in files else 'no file of it'}")
        for path, entry in files.items():
            if self._layers[path] != Layer(path, entry.sha256, entry.size):
                raise self._unfit(f"{path!r} is another file than its records say")
        return manifest, measurements

    def files(self, artifact: Artifact) -> None:
        """Everything but the records, and a record of what is left out."""
        layers = [self._layers[path] for path in artifact.files]
        self._done, self._total = 0, sum(layer.size for layer in layers)
        self._check_room(layers)
        for layer in layers:
            self._fetch(layer)
        if artifact.absent:
            partial = partial_of(artifact.manifest, artifact.absent)
            (self._staging / PARTIAL_NAME).write_bytes(partial.to_bytes())

    def _check_room(self, layers: Collection[Layer]) -> None:
        have = list_files(self._staging)
        need = sum(layer.size - have.get(layer.path, 0) for layer in layers)
        free = shutil.disk_usage(self._staging).free
        if need > free:
            raise SpeccompileError(
                f"{self._staging.parent}: {need / 1e6:.0f} MB are still to come and "
                f"{free / 1e6:.0f} MB are free; make room, or choose another destination"
            )

    def _fetch(self, layer: Layer) -> None:
        path = self._staging / layer.path
        path.parent.mkdir(parents=True, exist_ok=True)
        continued = path.exists()
        self._download(layer)
        if continued and not self._is_right(layer):  # by what an older pull left there
            path.unlink()
            self._download(layer)
        if not self._is_right(layer):
            raise ArtifactError(
                f"{self._reference}: the content of {layer.path!r} is not what was pushed; "
                "restore the registry, or push to another"
            )
        self._done += layer.size

    def _download(self, layer: Layer) -> None:
        """Have all that the registry has of a file, in as many goes as it takes."""
        path, failures = self._staging / layer.path, 0
        while not path.exists() or path.stat().st_size < layer.size:
            before = path.stat().st_size if path.exists() else 0
            try:
                for have in self._connection.download(layer.digest, path, layer.size):
                    self._progress(layer.path, self._done + have, self._total)
                return  # It may still be short: its hash tells.
            except ConnectionLost as error:
                moved = path.exists() and path.stat().st_size > before
                failures = 0 if moved else failures + 1
                if failures == _ATTEMPTS:
                    raise ConnectionLost(f"{error}; repeat the pull, it goes on there") from error
                time.sleep(failures)

    def _is_right(self, layer: Layer) -> bool:
        return hash_files(self._staging, [layer.path])[layer.path] == layer.sha256

    def _unfit(self, fault: str) -> ArtifactError:
        return ArtifactError(f"{self._reference}: {fault}; push the artifact again")


def _prepare(staging: Path, layers: Mapping[str, Layer]) -> None:
    """Keep of an earlier pull what may be the beginning of a file that is wanted."""
    try:
        found = list_files(staging) if staging.exists() else {}
    except ArtifactError:  # A link would lead out of it.
        shutil.rmtree(staging)
        found = {}
    staging.mkdir(exist_ok=True)
    for path, size in found.items():
        if path not in layers or size > layers[path].size:
            (staging / path).unlink()


@contextmanager
def _cleared(destination: Path, staging: Path) -> Generator[None]:
    """Leave what has arrived only where the connection ended, and a pull can go on."""
    try:
        yield
    except ConnectionLost:
        raise
    except Exception as error:
        shutil.rmtree(staging, ignore_errors=True)
        if not isinstance(error, OSError):
            raise
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        way_out = "; make room, or choose another destination" if full else ""
        raise SpeccompileError(
            f"{destination} cannot be written: {error.strerror}{way_out}"
        ) from error
