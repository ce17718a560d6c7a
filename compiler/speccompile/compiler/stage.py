"""A stage of a build, and what its result is cached under."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

__all__ = ["LIBRARIES", "Stage", "keys", "source_digest"]

# Stages run this code: a change to any of it may change what a stage writes.
LIBRARIES = ("onnx-ir", "onnxruntime", "openvino", "bitsandbytes", "gguf")
_SOURCES = ("speccompile.compiler", "speccompile.runtime", "speccompile.plugins")
_CODE = frozenset({".py", ".onnxtxt", ".cu", ".cuh", ".h"})


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


def keys(stages: Sequence[Stage]) -> dict[str, str]:
    """The cache key of every stage: a hash of its settings, its inputs' keys and the toolchain."""
    toolchain = {package: version(package) for package in LIBRARIES}
    toolchain["speccompile"] = source_digest()
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


def source_digest() -> str:
    """Of our own code: its version stands still while it is being worked on."""
    digest = hashlib.sha256()
    for package in _SOURCES:
        spec = find_spec(package)
        for folder in spec.submodule_search_locations or () if spec else ():
            for path in sorted(path for path in Path(folder).rglob("*") if path.suffix in _CODE):
                digest.update(path.relative_to(folder).as_posix().encode() + b"\0")
                digest.update(path.read_bytes())
    return digest.hexdigest()
