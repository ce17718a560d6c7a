"""`speccompile inspect`: what an artifact holds, and whether it is whole and can run here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console

from speccompile.cli.options import artifact_argument
from speccompile.runtime import host
from speccompile.runtime.artifact import hash_files, list_files, open_artifact
from speccompile.runtime.costmodel import plain_step_ms, predicted_speedup
from speccompile.runtime.errors import ArtifactError, CompatibilityError, SpeccompileError
from speccompile.runtime.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    FileEntry,
    Manifest,
    Requirements,
    parse_manifest,
)

__all__ = ["command"]


@click.command("inspect")
@artifact_argument
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--no-hash", is_flag=True, help="Compare the files' sizes only: instant.")
def command(artifact: Path, as_json: bool, no_hash: bool) -> None:
    """Show what ARTIFACT holds, how it was measured, and whether it is whole and can run here.

    A damaged artifact is shown as far as its manifest can be read; then the exit code is 3, and 4
    for one that this host cannot run.
    """
    report = _examine(artifact, hashed=not no_hash)
    if as_json:
        click.echo(json.dumps(_document(report), indent=1))
    else:
        _print(report, Console(highlight=False))
    if report.error is not None:
        raise report.error


@dataclass(frozen=True)
class _Need:
    """One requirement of the artifact, and what the host has for it."""

    what: str
    need: str
    have: str
    met: bool


@dataclass(frozen=True)
class _Report:
    """`files` says of each path of the manifest, and of each added one, how it was found."""

    root: Path
    manifest: Manifest
    files: Mapping[str, str]
    needs: list[_Need]
    error: SpeccompileError | None

    @property
    def speedup(self) -> float | None:
        """The speed-up that the build predicts for the default draft, where it is a model."""
        manifest = self.manifest
        if manifest.defaults.draft != "model":
            return None
        engines, length = manifest.engines, manifest.defaults.draft_length
        return predicted_speedup(length, manifest.acceptance, engines["draft"], engines["target"])

    @property
    def plain_tokens_per_second(self) -> float | None:
        milliseconds = plain_step_ms(self.manifest.engines["target"])
        return 1e3 / milliseconds if milliseconds else None


def _examine(root: Path, *, hashed: bool) -> _Report:
    error: SpeccompileError | None = None
    try:
        manifest = open_artifact(root, check=False).manifest
    except (ArtifactError, CompatibilityError) as refusal:
        manifest, error = _readable_manifest(root, refusal), refusal
    files = _states(root, manifest.files, hashed=hashed)
    changed = next((path for path, state in files.items() if state == "changed"), None)
    if changed is not None and not isinstance(error, ArtifactError):
        error = ArtifactError(
            f"{root}: the content of {changed!r} changed after the build; "
            "copy or build the artifact again"
        )
    return _Report(root, manifest, files, list(_needs(manifest.requires)), error)


def _readable_manifest(root: Path, refusal: SpeccompileError) -> Manifest:
    """The manifest of an artifact that was refused; raises the refusal where it has none."""
    path = root / MANIFEST_NAME
    if not path.is_file():
        raise refusal
    with path.open("rb") as file:
        return parse_manifest(file.read(MAX_MANIFEST_BYTES + 1), str(path))


def _states(root: Path, files: Mapping[str, FileEntry], *, hashed: bool) -> dict[str, str]:
    found = list_files(root)
    whole = [path for path, entry in files.items() if found.get(path) == entry.size]
    hashes = hash_files(root, whole) if hashed else {}
    states: dict[str, str] = {}
    for path, entry in files.items():
        if path not in found:
            states[path] = "missing"
        elif found[path] != entry.size:
            states[path] = f"{found[path]} bytes"
        elif not hashed:
            states[path] = "not hashed"
        else:
            states[path] = "ok" if hashes[path] == entry.sha256 else "changed"
    return states | dict.fromkeys(found.keys() - files.keys() - {MANIFEST_NAME}, "added")


def _needs(requires: Requirements) -> Iterator[_Need]:
    here, flags = host.describe(), host.cpu_flags()
    architecture = requires.architecture
    nothing = Requirements(here.architecture, (), {})
    met = here.architecture == architecture
    yield _Need("architecture", architecture, here.architecture, met)
    for flag in requires.cpu_flags:
        have = "unknown" if flags is None else flag if flag in flags else "no"
        yield _Need("CPU flag", flag, have, flags is None or flag in flags)
    for name, version in sorted(requires.packages.items()):
        met = _runs(Requirements(nothing.architecture, (), {name: version}))
        yield _Need(name, version, here.packages.get(name, "none"), met)


def _runs(requires: Requirements) -> bool:
    try:
        host.check(requires)
    except CompatibilityError:
        return False
    return True
