"""`speccompile inspect`: what an artifact holds, and whether it is whole and can run here."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.table import Table

from speccompile.cli.inspection import LEFT_OUT, Inspection, examine
from speccompile.cli.options import artifact_argument
from speccompile.cli.tables import facts_table, megabytes, plain_table, printable
from speccompile.runtime.manifest import Manifest

__all__ = ["command"]

_MEASURED = ("lossless", "defaults", "acceptance", "experts", "cost_ms")

_Value = TypeVar("_Value")


@click.command("inspect")
@artifact_argument
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--no-hash", is_flag=True, help="Compare the files' sizes only: instant.")
def command(artifact: Path, as_json: bool, no_hash: bool) -> None:
    """Show what ARTIFACT is, what it was measured to do, and whether it is whole and can run here.

    A damaged artifact is shown as far as its manifest can be read; then the exit code is 3, and 4
    for one that this host cannot run.
    """
    report = examine(artifact, hashed=not no_hash)
    if as_json:
        click.echo(json.dumps(_document(report), indent=1))
    else:
        _print(report, Console(highlight=False, markup=False))
    if report.error is not None:
        raise report.error


def _document(report: Inspection) -> dict[str, Any]:
    """The manifest, with what was found in place of what was recorded, and the measurements."""
    recorded: dict[str, Any] = asdict(report.manifest)
    measured: dict[str, Any] = asdict(report.measurements)
    entries = {path: asdict(entry) for path, entry in report.entries.items()}
    return recorded | {
        "path": str(report.root),
        "identity": report.manifest.identity,
        "bytes": report.size,
        "measured": {name: measured[name] for name in _MEASURED}
        | {
            "plain_tokens_per_second": report.plain_tokens_per_second,
            "predicted_speedup": report.speedup,
        },
        "requires": [asdict(need) for need in report.needs],
        "files": {
            path: entries.get(path, {}) | {"state": state} for path, state in report.states.items()
        },
        "error": None if report.error is None else str(report.error),
    }


def _print(report: Inspection, console: Console) -> None:
    manifest = report.manifest
    facts = {
        "name": manifest.name,
        "identity": manifest.identity,
        "built by": f"speccompile {manifest.compiler_version}",
        "holds": f"{len(report.held)} files, {megabytes(report.size)}",
        "model": _model(manifest),
    }
    console.print(facts_table(facts))
    sections = (
        *(_engines(manifest), *_gpu_engines(report), _sources(manifest)),
        *(*_measured(report), *_found(report)),
    )
    for section in sections:
        console.print()
        console.print(section)


def _model(manifest: Manifest) -> str:
    model = manifest.model
    ends = _listed(model.eos_token_ids) or "none"
    return (
        f"{model.layers} layers, {model.kv_heads} key-value heads of {model.head_dim}, "
        f"vocabulary {model.vocab_size}, context {model.context_length}, end tokens {ends}"
    )


def _engines(manifest: Manifest) -> Table:
    table = plain_table("engine", "backend", "weights", "arithmetic", "exact rows", ">cache slots")
    for role, engine in _targets_first(manifest.engines):
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


def _gpu_engines(report: Inspection) -> Iterator[Table]:
    """A row for each folder of plans."""
    manifest = report.manifest
    if not manifest.gpus:
        return
    table = plain_table("GPU engines", "library", "for", "plans by cache slots", ">size")
    for folder, gpu in sorted(manifest.gpus.items()):
        capacities: dict[str, list[int]] = {"target": [], "draft": []}
        for plan in gpu.plans:
            capacities[plan.role].append(plan.capacity)
        plans = [f"{role} {_listed(sorted(slots))}" for role, slots in capacities.items() if slots]
        size = megabytes(sum(manifest.files[path].size for path in gpu.paths))
        table.add_row(
            folder,
            f"{gpu.library} {gpu.library_version}",
            gpu.architecture,
            "\n".join(plans),
            LEFT_OUT if folder in report.absent else size,
        )
    yield table


def _listed(values: Iterable[object]) -> str:
    return ", ".join(map(str, values))


def _sources(manifest: Manifest) -> Table:
    """Where the models came from; the recipe is in the JSON."""
    facts: dict[str, str] = {}
    models = dict(manifest.provenance)
    experts = models.pop("experts", None)
    if isinstance(experts, Mapping):
        models |= experts
    for name, value in models.items():
        if name != "recipe" and isinstance(value, Mapping):
            facts |= {f"{name} {key}": printable(item) for key, item in value.items() if item}
    return facts_table(facts)


def _measured(report: Inspection) -> Iterator[Table]:
    """What holds for the host that measured it alone, and is no part of the identity."""
    measured = report.measurements
    yield facts_table(
        {
            "measured": "on the host of the build or of `tune`; no part of the identity",
            "lossless": "shown by the build" if measured.lossless else "NOT shown by the build",
            "speed": _speed(report),
            "acceptance": _rates(measured.acceptance),
            **{f"{name} acceptance": _rates(found) for name, found in measured.experts.items()},
        }
    )
    rows = sorted({count for costs in measured.cost_ms.values() for count in costs})
    table = plain_table("ms by rows", *(f">{count}" for count in rows))
    for role, costs in _targets_first(measured.cost_ms):
        cells = (costs.get(count) for count in rows)
        table.add_row(role, *("" if cost is None else f"{cost:.1f}" for cost in cells))
    yield table


def _rates(acceptance: Sequence[float]) -> str:
    return " ".join(f"{rate:.2f}" for rate in acceptance) or "not measured"


def _speed(report: Inspection) -> str:
    defaults, plain = report.measurements.defaults, report.plain_tokens_per_second
    facts = [f"{plain:.1f} tokens/s plain when built"] if plain else ["not measured"]
    if defaults.draft == "none":
        return f"{facts[0]}; no draft"
    facts.append(f"{defaults.draft} draft of {defaults.draft_length}")
    if report.speedup is not None:
        facts.append(f"predicted {report.speedup:.2f}x")
    return ", ".join(facts)


def _found(report: Inspection) -> Iterator[Table]:
    needs = plain_table("requires", "need", "have", "")
    for need in report.needs:
        needs.add_row(need.what, need.need, need.have, "ok" if need.met else "LACKING")
    yield needs
    files = plain_table("file", "role", ">size", "content")
    for path, state in report.states.items():
        entry = report.entries.get(path)
        role, size = (entry.role, megabytes(entry.size)) if entry else ("", "")
        files.add_row(printable(path), role, size, state)
    yield files


def _targets_first(by_role: Mapping[str, _Value]) -> list[tuple[str, _Value]]:
    return sorted(by_role.items(), key=lambda item: item[0] != "target")
