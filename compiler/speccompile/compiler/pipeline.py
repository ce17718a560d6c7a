"""The build as a readable list of stages, checked before anything runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from speccompile.compiler.recipe import Recipe
from speccompile.runtime.errors import SpeccompileError

__all__ = ["PROBED_ROWS", "Stage", "keys", "plan"]

PROBED_ROWS = (*range(1, 10), 16)
"""Row counts whose cost is measured: every draft length from 0 to 8, and one beyond."""

_SPARE_ROWS = 32
"""Cache slots beyond the context: the room of the padding that keeps rows exact."""

# Stages run this code: a change to any of it may change what a stage writes.
_LIBRARIES = ("onnx-ir", "onnxruntime", "openvino", "bitsandbytes", "gguf")
_SOURCES = ("speccompile.compiler", "speccompile.runtime", "speccompile.plugins")


@dataclass(frozen=True)
class Stage:
    """One step: a function that turns input folders and settings into an output folder.

    `run` names it as ``module:function``; it is called ``(folder, inputs, settings)`` in a process
    of its own. `inputs` are the names of earlier stages. `settings` is JSON, and with the inputs
    all that the result may depend on: a result is cached under their hash.
    """

    name: str
    run: str
    inputs: tuple[str, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict[str, object])


def plan(recipe: Recipe) -> list[Stage]:
    """The stages of `recipe`: load and check, then for each role quantize, export, for each
    engine lower and compile, and measure the engines."""
    stages = [_load("target", recipe.target.source, recipe.target.sha256)]
    precisions: dict[str, str] = {"target": recipe.target.precision}
    if recipe.draft:
        precisions["draft"] = recipe.draft.precision
        if recipe.draft.source != "target":
            stages.append(_load("draft", recipe.draft.source, recipe.draft.sha256))
    loaded = [stage.name for stage in stages]
    stages.append(
        Stage(
            "check",
            "speccompile.compiler.stages.check:run",
            tuple(loaded),
            {"context": recipe.context.length},
        )
    )
    for role, precision in precisions.items():
        source = f"load {role}" if f"load {role}" in loaded else "load target"
        stages += _compile(recipe, role, precision, source)
    _check_order(stages)
    return stages


def keys(stages: Sequence[Stage]) -> dict[str, str]:
    """The cache key of every stage: a hash of its settings, its inputs' keys and the toolchain."""
    toolchain = {package: version(package) for package in _LIBRARIES}
    toolchain["speccompile"] = _source_digest()
    result: dict[str, str] = {}
    for stage in stages:
        identity = {
            "run": stage.run,
            "settings": dict(stage.settings),
            "inputs": [result[name] for name in stage.inputs],
            "toolchain": toolchain,
        }
        text = json.dumps(identity, sort_keys=True)
        result[stage.name] = hashlib.sha256(text.encode()).hexdigest()[:24]
    return result


def _source_digest() -> str:
    """Of our own code: its version stands still while it is being worked on."""
    digest = hashlib.sha256()
    for package in _SOURCES:
        spec = find_spec(package)
        for folder in spec.submodule_search_locations or () if spec else ():
            for path in sorted(Path(folder).rglob("*.py")):
                digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
                digest.update(path.read_bytes())
    return digest.hexdigest()


def _load(role: str, source: str, sha256: str | None) -> Stage:
    return Stage(
        f"load {role}",
        "speccompile.compiler.stages.load:run",
        settings={"source": source, "sha256": sha256},
    )


def _compile(recipe: Recipe, role: str, precision: str, source: str) -> list[Stage]:
    capacity, threads = recipe.context.length + _SPARE_ROWS, recipe.engine.threads
    stages = [
        Stage(
            f"quantize {role}",
            "speccompile.compiler.stages.quantize:run",
            (source,),
            {"precision": precision},
        ),
        Stage(
            f"export {role}",
            "speccompile.compiler.stages.export:run",
            (source, f"quantize {role}"),
            {"capacity": capacity},
        ),
    ]
    measured: list[str] = []
    for backend in recipe.engine.cpu:
        lower, compile_ = f"lower {role} {backend}", f"compile {role} {backend}"
        measured += [lower, compile_]
        shared = {"backend": backend, "precision": precision}
        settings = {
            **shared,
            "role": role,
            "capacity": capacity,
            "threads": threads,
            "shares_cache": role == "draft" and source == "load target",
        }
        stages += [
            Stage(lower, "speccompile.compiler.stages.lower:run", (f"export {role}",), shared),
            Stage(
                compile_,
                "speccompile.compiler.stages.compile:run",
                (source, f"export {role}", lower),
                settings,
            ),
        ]
    measure = {"threads": threads, "rows": list(PROBED_ROWS)}
    stages.append(
        Stage(
            f"measure {role}",
            "speccompile.compiler.stages.measure:run",
            tuple(measured),
            measure,
        )
    )
    return stages


def _check_order(stages: Sequence[Stage]) -> None:
    done: set[str] = set()
    for stage in stages:
        if missing := [name for name in stage.inputs if name not in done]:
            raise SpeccompileError(
                f"stage {stage.name!r} needs {', '.join(missing)} before it; "
                f"the order is {', '.join(entry.name for entry in stages)}"
            )
        if stage.name in done:
            raise SpeccompileError(f"stage {stage.name!r} stands twice in the pipeline")
        done.add(stage.name)
