"""`speccompile inspect`: what an artifact holds, and whether it is whole and can run here."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from speccompile.cli.options import artifact_argument
from speccompile.runtime import host
from speccompile.runtime.artifact import hash_files, list_files, open_artifact
from speccompile.runtime.costmodel import plain_step_ms, predicted_speedup
from speccompile.runtime.errors import ArtifactError, CompatibilityError, SpeccompileError
from speccompile.runtime.manifest import (
    MANIFEST_NAME,
    MAX_MANIFEST_BYTES,
    EngineInfo,
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
        _print(report, Console(highlight=False, markup=False))
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


def _document(report: _Report) -> dict[str, Any]:
    """The manifest, with what was found and derived in place of what was recorded."""
    manifest = report.manifest
    recorded: dict[str, Any] = asdict(manifest)
    files: dict[str, dict[str, object]] = {path: {} for path in report.files} | recorded["files"]
    return recorded | {
        "path": str(report.root),
        "identity": manifest.identity,
        "bytes": _size(manifest),
        "plain_tokens_per_second": report.plain_tokens_per_second,
        "predicted_speedup": report.speedup,
        "requires": [asdict(need) for need in report.needs],
        "files": {path: entry | {"state": report.files[path]} for path, entry in files.items()},
        "error": None if report.error is None else str(report.error),
    }


def _print(report: _Report, console: Console) -> None:
    manifest = report.manifest
    facts = {
        "name": manifest.name,
        "identity": manifest.identity,
        "built by": f"speccompile {manifest.compiler_version}",
        "holds": f"{len(manifest.files)} files, {_megabytes(_size(manifest))}",
        "lossless": "shown by the build" if manifest.lossless else "NOT shown by the build",
        "model": _model(manifest),
        "speed": _speed(report),
        "acceptance": " ".join(f"{rate:.2f}" for rate in manifest.acceptance) or "not measured",
    }
    console.print(_facts(facts))
    for section in (_engines(manifest), _costs(manifest), _sources(manifest), *_found(report)):
        console.print()
        console.print(section)


def _model(manifest: Manifest) -> str:
    model = manifest.model
    ends = ", ".join(map(str, model.eos_token_ids)) or "none"
    return (
        f"{model.layers} layers, {model.kv_heads} key-value heads of {model.head_dim}, "
        f"vocabulary {model.vocab_size}, context {model.context_length}, end tokens {ends}"
    )


def _speed(report: _Report) -> str:
    defaults, plain = report.manifest.defaults, report.plain_tokens_per_second
    facts = [f"{plain:.1f} tokens/s plain when built"] if plain else ["not measured"]
    if defaults.draft == "none":
        return f"{facts[0]}; no draft"
    facts.append(f"{defaults.draft} draft of {defaults.draft_length}")
    if report.speedup is not None:
        facts.append(f"predicted {report.speedup:.2f}x")
    return ", ".join(facts)


def _engines(manifest: Manifest) -> Table:
    table = _table("engine", "backend", "weights", "arithmetic", "exact rows", ">cache slots")
    for role, engine in _targets_first(manifest):
        exact = f"steps of {engine.min_rows}+" if engine.min_rows else "no"
        table.add_row(
            role,
            engine.backend,
            engine.precision,
            engine.arithmetic,
            exact if role == "target" else "",  # a draft need not be
            str(engine.capacity),
        )
    return table


def _costs(manifest: Manifest) -> Table:
    rows = sorted({count for engine in manifest.engines.values() for count in engine.cost_ms})
    table = _table("ms by rows", *(f">{count}" for count in rows))
    for role, engine in _targets_first(manifest):
        costs = (engine.cost_ms.get(count) for count in rows)
        table.add_row(role, *("" if cost is None else f"{cost:.1f}" for cost in costs))
    return table


def _sources(manifest: Manifest) -> Table:
    """Where the models came from; the recipe is in the JSON."""
    facts: dict[str, str] = {}
    for name, value in manifest.provenance.items():
        if name != "recipe" and isinstance(value, Mapping):
            facts |= {f"{name} {key}": _text(item) for key, item in value.items() if item}
    return _facts(facts)


def _found(report: _Report) -> Iterator[Table]:
    needs = _table("requires", "need", "have", "")
    for need in report.needs:
        needs.add_row(need.what, need.need, need.have, "ok" if need.met else "LACKING")
    yield needs
    files = _table("file", "role", ">size", "content")
    for path, state in report.files.items():
        entry = report.manifest.files.get(path)
        role, size = (entry.role, _megabytes(entry.size)) if entry else ("", "")
        files.add_row(_text(path), role, size, state)
    yield files


def _targets_first(manifest: Manifest) -> list[tuple[str, EngineInfo]]:
    return sorted(manifest.engines.items(), key=lambda item: item[0] != "target")


def _facts(facts: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(overflow="fold")
    for name, value in facts.items():
        table.add_row(name, value)
    return table


def _table(*headings: str) -> Table:
    """A plain table; ``>`` before a heading aligns its column to the right."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for heading in headings:
        table.add_column(
            heading.removeprefix(">"),
            justify="right" if heading.startswith(">") else "left",
            overflow="fold",
        )
    return table


def _size(manifest: Manifest) -> int:
    return sum(entry.size for entry in manifest.files.values())


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f} MB" if size >= 1e5 else f"{size} B"


def _text(value: object) -> str:
    """Provenance and the names of added files may hold anything, even commands to a terminal."""
    text = str(value)
    return text if text.isprintable() else repr(text)
