"""Artifacts side by side in one folder, by identity, and which of them is in use.

    artifacts/IDENTITY/     whole artifacts
    releases/1, 2, ...      links to those that were put to use, in this order
    current                 a link to the release in use: what a server opens

One rename of a link changes what is in use, and with it what was in use before: that is the release
with the number below. So whatever is killed, in a folder there is the old state or the new one.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from speccompile.runtime.artifact import Artifact, open_artifact, read_manifest
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.files import UNLISTED_NAMES
from speccompile.runtime.publish import holds, lock, publish, recover, sibling, sync_paths

__all__ = ["Deployed", "Deployment"]

_ARTIFACTS, _RELEASES, _CURRENT = "artifacts", "releases", "current"
_SHORTEST = 8  # digits of an identity that stand for all of it


@dataclass(frozen=True)
class Deployed:
    """An artifact that is there; `releases` are the numbers under which it was put to use."""

    identity: str
    name: str
    releases: tuple[int, ...]


class Deployment:
    """The folder `root`; it is made by the first artifact that is added."""

    def __init__(self, root: Path) -> None:
        self.root = root

    @property
    def current(self) -> str | None:
        """The identity of what is in use; None before anything is."""
        release = self._release()
        return self._identity(release) if release else None

    @property
    def previous(self) -> str | None:
        """The identity of what was in use before; None where nothing was."""
        release = self._release()
        return self._identity(release - 1) if release and release > 1 else None

    def artifacts(self) -> list[Deployed]:
        """All that is there, by identity; raises ArtifactError for one that cannot be read."""
        release = self._release() or 0
        used = {number: self._identity(number) for number in range(1, release + 1)}
        return [
            Deployed(
                identity,
                read_manifest(self._place(identity)).name,
                tuple(number for number, held in used.items() if held == identity),
            )
            for identity in self._identities()
        ]

    def add(self, source: Path) -> str:
        """Copy the artifact in the folder `source` here, and return its identity.

        The copy is hashed before it has its name. One that is there already is left alone if it is
        the same, measurements included; otherwise the new one takes its place in one step.
        """
        artifact = open_artifact(source, on_cpu=False)
        identity = artifact.manifest.identity
        with self._changing():
            place = self._place(identity)
            staging = sibling(place, "staging")
            recover(place)
            shutil.rmtree(staging, ignore_errors=True)  # of a process that was killed
            if not holds(place, artifact):
                try:
                    _copy(artifact, staging)
                    open_artifact(staging, on_cpu=False)
                    publish(staging, place)
                finally:
                    shutil.rmtree(staging, ignore_errors=True)
        return identity

    def use(self, digest: str) -> str:
        """Have `current` mean the artifact whose identity begins with `digest`; returns all of it.

        All of the artifact is hashed before. Using what is in use changes nothing.
        """
        with self._changing():
            identity = self._find(digest)
            open_artifact(self._place(identity), on_cpu=False)
            release = self._release() or 0
            if not release or self._identity(release) != identity:
                for number in self._numbers():
                    if number > release:  # rolled back, or left by a process that was killed
                        self._link(number).unlink()
                self._link(release + 1).symlink_to(Path("..", _ARTIFACTS, identity))
                self._switch(release + 1)
            return identity

    def roll_back(self) -> str:
        """Have `current` mean what it meant before; returns its identity."""
        with self._changing():
            release, identity = self._release(), self.previous
            if release is None or identity is None:
                raise SpeccompileError(f"{self.root}: nothing was in use before; choose with --use")
            open_artifact(self._place(identity), on_cpu=False)
            self._switch(release - 1)
            return identity

    def _switch(self, release: int) -> None:
        new = self.root / f".{_CURRENT}.new"
        new.unlink(missing_ok=True)
        new.symlink_to(Path(_RELEASES, str(release)))
        sync_paths([self.root / _RELEASES, self.root])
        new.replace(self.root / _CURRENT)
        sync_paths([self.root])

    def _find(self, digest: str) -> str:
        digest, identities = digest.removeprefix("sha256:"), self._identities()
        found = [identity for identity in identities if identity.startswith(digest)]
        if len(digest) < _SHORTEST:
            raise SpeccompileError(f"{digest!r}: give {_SHORTEST} digits of the identity at least")
        if len(found) != 1:
            fault = "several begin" if found else "no artifact there begins"
            there = ", ".join(identity[:12] for identity in identities) or "none"
            raise SpeccompileError(f"{self.root}: {fault} with {digest}; there are {there}")
        return found[0]

    def _identities(self) -> list[str]:
        folder = self.root / _ARTIFACTS
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return sorted(name for name in names if not name.startswith("."))

    def _place(self, identity: str) -> Path:
        return self.root / _ARTIFACTS / identity

    def _link(self, release: int) -> Path:
        return self.root / _RELEASES / str(release)

    def _numbers(self) -> list[int]:
        names = [path.name for path in (self.root / _RELEASES).iterdir()]
        return sorted(int(name) for name in names if name.isdecimal())

    def _release(self) -> int | None:
        link = self.root / _CURRENT
        if not os.path.lexists(link):
            return None
        return int(self._pointed(link, "[1-9][0-9]{0,8}"))

    def _identity(self, release: int) -> str:
        return self._pointed(self._link(release), "[0-9a-f]{64}")

    def _pointed(self, link: Path, form: str) -> str:
        """The last name of where a link leads."""
        try:
            name = link.readlink().name
        except OSError as error:
            raise SpeccompileError(
                f"{link} is no link of a deployment: {error.strerror}"
            ) from error
        if not re.fullmatch(form, name):
            raise SpeccompileError(f"{link} is no link of a deployment: it leads to {name!r}")
        return name

    @contextmanager
    def _changing(self) -> Generator[None]:
        """With the right to change what is here, and with the disk's refusals in one line."""
        try:
            (self.root / _RELEASES).mkdir(parents=True, exist_ok=True)
            with lock(self.root / _ARTIFACTS):
                (self.root / _ARTIFACTS).mkdir(exist_ok=True)
                yield
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            way_out = "; make room, or remove artifacts that are not in use" if full else ""
            raise SpeccompileError(
                f"{self.root} cannot be changed: {error.strerror}{way_out}"
            ) from error


def _copy(artifact: Artifact, destination: Path) -> None:
    """Its files alone, with the right to execute where they have it."""
    records = [name for name in UNLISTED_NAMES if (artifact.root / name).exists()]
    for path in (*records, *artifact.files):
        (destination / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(artifact.root / path, destination / path)
