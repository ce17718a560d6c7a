"""`speccompile doctor`: what this machine has, and which engines of an artifact can run on it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from speccompile.cli.diagnosis import EXTRAS, Engine, Machine, Package, diagnose, engines_here
from speccompile.cli.inspection import Inspection, examine
from speccompile.cli.self_tests import run_self_tests
from speccompile.cli.tables import facts_table, plain_table, printable
from speccompile.runtime.errors import (
    ArtifactError,
    CompatibilityError,
    EngineError,
    SpeccompileError,
)
from speccompile.runtime.host import Need

__all__ = ["command"]

_PURPOSES = {"": "to run", "compiler": "to build", "cuda": "for GPUs"}
_OPTIONAL = ("matplotlib", "nvtx")


@click.command("doctor")
@click.argument("artifact", type=click.Path(path_type=Path), required=False)
@click.option("--json", "as_json", is_flag=True, help="Print everything as JSON.")
@click.option("--no-self-test", is_flag=True, help="Run nothing on a GPU: instant.")
def command(artifact: Path | None, as_json: bool, no_self_test: bool) -> None:
    """Show what this machine has: processor, GPUs, driver, libraries, and what it can build.

    With ARTIFACT also which of its engines can run here, and what each needs and finds. Plans that
    can run on a GPU here are tested there against the CPU's engines; where they pass, this artifact
    is from now on run on that GPU. The exit code is 4 where no engine can run, 5 where plans fail
    their test, and 3 for a damaged artifact, which `speccompile inspect` looks into.
    """
    report = examine(artifact, hashed=False) if artifact else None
    machine = diagnose()
    engines = engines_here(report, machine.found) if report else []
    if report and not no_self_test and not isinstance(report.error, ArtifactError):
        engines = run_self_tests(report.root, engines, machine.found)
    error = _refusal(report, engines) if report else None
    if as_json:
        click.echo(json.dumps(_document(machine, report, engines, error), indent=1))
    else:
        _print(Console(highlight=False, markup=False), machine, report, engines)
    if error is not None:
        raise error


def _refusal(report: Inspection, engines: list[Engine]) -> SpeccompileError | None:
    if isinstance(report.error, ArtifactError):
        return report.error
    for engine in engines:
        if engine.failed:
            return EngineError(
                f"{report.root}: {_place(engine)} fails its self-test: {engine.said}"
            )
    if any(engine.runs for engine in engines):
        return None
    lacks = "; ".join(f"{engine.name} lacks {', '.join(engine.lacks)}" for engine in engines)
    return CompatibilityError(
        f"{report.root}: no engine of the artifact can run here: {lacks}. "
        "Install what is named, or build the artifact for this host"
    )


def _document(
    machine: Machine,
    report: Inspection | None,
    engines: list[Engine],
    error: SpeccompileError | None,
) -> dict[str, Any]:
    found = asdict(machine.found)
    document: dict[str, Any] = {
        "host": asdict(machine.host),
        "instructions": machine.instructions,
        "python": machine.python,
        "packages": [asdict(package) for package in machine.packages],
        "libraries": [asdict(library) for library in machine.libraries],
        "driver": found["driver"],
        "gpus": found["gpus"],
        "gpus_reason": found["reason"],
        "cache": {"path": str(machine.cache), "free_bytes": machine.free_bytes},
    }
    if report:
        document["artifact"] = {
            "path": str(report.root),
            "name": report.manifest.name,
            "identity": report.manifest.identity,
            "engines": [asdict(engine) | {"runs": engine.runs} for engine in engines],
            "error": None if error is None else str(error),
        }
    return document


def _print(
    console: Console, machine: Machine, report: Inspection | None, engines: list[Engine]
) -> None:
    groups: list[Mapping[str, RenderableType]]
    groups = [_hardware(machine), _software(machine), _work(machine)]
    if report:
        name = report.manifest.name
        groups.append({"artifact": name, "identity": report.manifest.identity})
    console.print(facts_table(*groups))
    if report is None:
        return
    needs = [need for engine in engines for need in engine.needs]
    for engine in engines:
        console.print()
        console.print(_headline(engine))
        console.print(_table(engine.needs, needs))
    console.print()
    said = {f"test of {engine.name}": printable(engine.said) for engine in engines if engine.said}
    console.print(facts_table({**said, "verdict": _verdict(engines)}))


def _hardware(machine: Machine) -> dict[str, str]:
    here, found, known = machine.host, machine.found, machine.instructions
    memory = "unknown" if here.memory_bytes is None else _gigabytes(here.memory_bytes)
    facts = {
        "processor": f"{printable(here.cpu)}, {here.architecture}",
        "cores": str(here.cores),
        "memory": memory,
        "instructions": "unknown" if known is None else " ".join(known) or "none that matter",
    }
    if found.driver:
        version = found.driver.version or "of unknown version"
        facts["driver"] = f"{version}, runs CUDA up to {found.driver.cuda}"
    for gpu in found.gpus:
        facts[f"GPU {gpu.index}"] = printable(
            f"{gpu.name}, {gpu.architecture}, {_gigabytes(gpu.memory_bytes)}, {gpu.uuid}"
        )
    if found.reason:
        facts["GPUs" if found.gpus else "GPU"] = printable(found.reason)
    return facts


def _software(machine: Machine) -> dict[str, RenderableType]:
    facts: dict[str, RenderableType] = {"Python": machine.python}
    for extra in EXTRAS:
        facts[_PURPOSES[extra]] = _versions(
            [package for package in machine.packages if package.extra == extra]
        )
    for library in machine.libraries:
        facts[library.name] = library.version or f"not installed ({_install(library.extra)})"
    return facts


def _work(machine: Machine) -> dict[str, str]:
    return {
        "can build": "\n".join(_builds(machine)),
        "cache": f"{machine.cache}, {_gigabytes(machine.free_bytes)} free",
    }


def _versions(packages: list[Package]) -> Group:
    have = [f"{package.name} {package.version}" for package in packages if package.version]
    lines: list[RenderableType] = [Columns(have, padding=(0, 2))] if have else []
    if missing := _missing(packages):
        lines.append(f"not installed: {', '.join(missing)} ({_install(packages[0].extra)})")
    return Group(*lines)


def _missing(packages: Iterable[Package]) -> list[str]:
    return [package.name for package in packages if package.version is None]


def _install(extra: str) -> str:
    return f"pip install 'speccompile[{extra}]'" if extra else "pip install speccompile"


def _builds(machine: Machine) -> Iterator[str]:
    """What of a build can succeed here; some packages only draw, or mark ranges for a profiler."""
    needed = [package for package in machine.packages if package.name not in _OPTIONAL]
    if _missing(package for package in needed if package.extra != "cuda"):
        yield "nothing before the packages that are not installed are"
        return
    yield "engines for the CPU"
    installed = [library for library in machine.libraries if library.version]
    if not installed:
        yield "no plans for GPUs without tensorrt or tensorrt_rtx"
    elif missing := _missing(needed):
        yield f"no plans for GPUs without {', '.join(missing)}"
        return
    for library in installed:
        if library.architectures:
            yield f"plans for {' '.join(library.architectures)} with {library.name}"
        elif library.name == "tensorrt":
            yield "no plans with tensorrt, which builds on a GPU only"
        else:
            yield f"no plans with {library.name}, which cannot be imported"


def _headline(engine: Engine) -> Text:
    on = f"GPU {engine.gpu.index}" if engine.gpu else ""
    if engine.failed:
        state, style = f"fails its self-test on {on}", "bold red"
    elif not engine.runs:
        state, style = "cannot run here", "red"
    elif engine.gpu is None:
        state, style = "can run here", "green"
    elif engine.verified:
        state, style = f"can run here, verified on {on} ({engine.verified[:10]})", "green"
    else:
        state, style = f"can run on {on}, not verified on this GPU", "yellow"
    return Text.assemble((engine.name, "bold"), "  ", (state, style))


def _place(engine: Engine) -> str:
    return f"{engine.name} on GPU {engine.gpu.index}" if engine.gpu else engine.name


def _table(needs: Iterable[Need], of_all: list[Need]) -> Table:
    """Need against have; as wide as those of the other engines, to stand in line with them."""
    table = plain_table("requires", "need", "have", "")
    for column, name in zip(table.columns, ("what", "need", "have"), strict=False):
        column.min_width = max(len(getattr(need, name)) for need in of_all)
    for need in needs:
        state = Text("ok", "green") if need.met else Text("LACKING", "bold red")
        table.add_row(need.what, need.need, need.have, state)
    return table


def _verdict(engines: list[Engine]) -> str:
    runs = [
        engine.name + (" (not verified)" if engine.gpu and not engine.verified else "")
        for engine in engines
        if engine.runs
    ]
    stuck = [
        f"{engine.name} (lacks {', '.join(engine.lacks)})" for engine in engines if engine.lacks
    ]
    stuck += [f"{engine.name} (fails its self-test)" for engine in engines if engine.failed]
    if not runs:
        return "nothing of it can run here"
    return f"can run here: {', '.join(runs)}" + (f"; cannot: {', '.join(stuck)}" if stuck else "")


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB"
