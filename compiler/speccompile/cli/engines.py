"""`--engine`: which engines to build for, in place of what the recipe says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

__all__ = ["engine_keys", "engine_option"]

_Command = TypeVar("_Command", bound=Callable[..., Any])

_CPU = ("openvino", "onnxruntime")
_GPU = {"tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx"}


def engine_option(command: _Command) -> _Command:
    """--engine, as often as there are engines."""
    return click.option(
        "--engine",
        "engines",
        multiple=True,
        metavar="NAME[:ARCH,...]",
        help="An engine to build for, in place of the recipe's: openvino, onnxruntime, "
        "tensorrt:sm89,sm90 or tensorrt-rtx:sm89,sm120. May be given more than once.",
    )(command)


def engine_keys(engines: Sequence[str]) -> dict[str, object]:
    """The keys of a recipe's engine table that `engines` stand for; raises click.UsageError."""
    keys: dict[str, object] = {}
    if cpu := [engine for engine in engines if engine in _CPU]:
        keys["cpu"] = cpu
    for engine in engines:
        name, _, architectures = engine.partition(":")
        if engine in _CPU:
            continue
        if name not in _GPU:
            raise click.UsageError(f"--engine {engine}: there are {', '.join((*_CPU, *_GPU))}")
        if not architectures:
            raise click.UsageError(f"--engine {engine}: say for which GPUs, as in {name}:sm89")
        if "tensorrt" in keys:
            raise click.UsageError(
                "--engine names TensorRT twice; a build has one of its libraries"
            )
        keys |= {"tensorrt": architectures.split(","), "tensorrt_library": _GPU[name]}
    return keys
