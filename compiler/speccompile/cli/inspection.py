"""What an artifact holds, as far as it can be read, and how its files and the host were found."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from speccompile.runtime import host
from speccompile.runtime.artifact import (
    hash_files,
    list_files,
    open_artifact,
    read_absent,
    read_manifest,
    read_measurements,
)
from speccompile.runtime.costmodel import plain_step_ms, predicted_speedup
from speccompile.runtime.draft_names import engine_name
from speccompile.runtime.errors import ArtifactError, CompatibilityError, SpeccompileError
from speccompile.runtime.files import UNLISTED_NAMES, FileEntry
from speccompile.runtime.host import Need
from speccompile.runtime.manifest import Manifest, Requirements
from speccompile.runtime.measurements import Measurements, unmeasured
from speccompile.runtime.partial import absent_files

__all__ = ["LEFT_OUT", "Inspection", "examine"]

LEFT_OUT = "left out"
"""The state of a file of absent plans."""


@dataclass(frozen=True)
class Inspection:
    """`entries` are what the records say of files; `states` how each was found, and all others.

    `absent` are the folders of plans that were left out when the artifact was pulled.
    """

    root: Path
    manifest: Manifest
    measurements: Measurements
    entries: Mapping[str, FileEntry]
    states: Mapping[str, str]
    needs: list[Need]
    error: SpeccompileError | None
    absent: frozenset[str] = frozenset()

    @property
    def size(self) -> int:
        """Bytes of the files that should be there."""
        return sum(entry.size for entry in self.held)

    @property
    def held(self) -> list[FileEntry]:
        """Of the files that should be there."""
        return [entry for path, entry in self.entries.items() if self.states[path] != LEFT_OUT]

    @property
    def speedup(self) -> float | None:
        """The speed-up that the build predicts for the default draft, where it is a model."""
        measured = self.measurements
        draft = engine_name(measured.defaults.draft)
        if draft not in self.manifest.drafts:
            return None
        return predicted_speedup(
            measured.defaults.draft_length,
            measured.of_engine(draft),
            measured.cost_ms[draft],
            measured.cost_ms["target"],
            shares_cache=self.manifest.engines[draft].shares_cache,
        )

    @property
    def plain_tokens_per_second(self) -> float | None:
        milliseconds = plain_step_ms(self.measurements.cost_ms.get("target", {}))
        return 1e3 / milliseconds if milliseconds else None


def examine(root: Path, *, hashed: bool) -> Inspection:
    """Look at the artifact in `root`, at its files' content only where `hashed`.

    Raises ArtifactError where not even the manifest can be read.
    """
    error: SpeccompileError | None = None
    try:
        open_artifact(root, check=False)
    except (ArtifactError, CompatibilityError) as refusal:
        error = refusal
    manifest = read_manifest(root)
    measurements = _readable_measurements(root, manifest)
    entries = {**manifest.files, **measurements.files}
    absent = _readable_absent(root, manifest)
    states = _states(root, entries, absent_files(manifest, absent), hashed=hashed)
    changed = next((path for path, state in states.items() if state == "changed"), None)
    if changed is not None and not isinstance(error, ArtifactError):
        error = ArtifactError(
            f"{root}: the content of {changed!r} changed after the build; "
            "copy or build the artifact again"
        )
    needs = list(_needs(manifest.requires))
    return Inspection(root, manifest, measurements, entries, states, needs, error, absent)


def _readable_measurements(root: Path, manifest: Manifest) -> Measurements:
    """Those of the artifact, or none where it was refused for them."""
    try:
        return read_measurements(root, manifest)
    except ArtifactError:
        return unmeasured(manifest)


def _readable_absent(root: Path, manifest: Manifest) -> frozenset[str]:
    """What was left out, nothing where the artifact was refused for the record of it."""
    try:
        return read_absent(root, manifest)
    except ArtifactError:
        return frozenset()


def _states(
    root: Path, entries: Mapping[str, FileEntry], left_out: Collection[str], *, hashed: bool
) -> dict[str, str]:
    found = list_files(root)
    whole = [path for path, entry in entries.items() if found.get(path) == entry.size]
    hashes = hash_files(root, whole) if hashed else {}
    states: dict[str, str] = {}
    for path, entry in entries.items():
        if path not in found:
            states[path] = LEFT_OUT if path in left_out else "missing"
        elif found[path] != entry.size:
            states[path] = f"{found[path]} bytes"
        elif not hashed:
            states[path] = "not hashed"
        else:
            states[path] = "ok" if hashes[path] == entry.sha256 else "changed"
    others = sorted(found.keys() - entries.keys() - UNLISTED_NAMES)
    return states | dict.fromkeys(others, "unlisted")


def _needs(requires: Requirements) -> Iterator[Need]:
    here, flags = host.describe(), host.cpu_flags()
    architecture = requires.architecture
    nothing = Requirements(here.architecture, (), {})
    met = here.architecture == architecture
    yield Need("architecture", architecture, here.architecture, met)
    for flag in requires.cpu_flags:
        have = "unknown" if flags is None else flag if flag in flags else "no"
        yield Need("CPU flag", flag, have, flags is None or flag in flags)
    for name, version in sorted(requires.packages.items()):
        met = _runs(Requirements(nothing.architecture, (), {name: version}))
        yield Need(name, version, here.packages.get(name, "none"), met)


def _runs(requires: Requirements) -> bool:
    try:
        host.check(requires)
    except CompatibilityError:
        return False
    return True
