"""A model repository for Triton Inference Server, made of an artifact.

    DIR/NAME/config.pbtxt      what the model takes and gives; written once, then the user's
    DIR/NAME/1/model.py        the model for the server's Python backend
    DIR/NAME/1/artifact/       the artifact, whole

The artifact is copied, not referred to: a version of a repository is what Triton loads, moves and
rolls back, also from an object store, where a path of this host means nothing.
"""

from __future__ import annotations

import os
import re
import shutil
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from string import Template

from speccompile.runtime.artifact import open_artifact
from speccompile.runtime.errors import RequestError, SpeccompileError
from speccompile.runtime.publish import sync_paths, sync_tree

__all__ = ["write_model"]

_CONFIG, _MODEL = "config.pbtxt", "model.py"


def write_model(
    artifact: Path | str, repository: Path, *, name: str | None = None, version: int = 1
) -> Path:
    """Add a version of a model, by default named as the artifact; returns its folder.

    The server finds the whole version or none: its folder gets its name when all of it is on the
    disk, and the copy is checked as every artifact is, except for whether it can run on this host.
    Raises ArtifactError for one that is not whole, RequestError for a name that is no model's and
    for a version that is there, SpeccompileError where the disk refuses.
    """
    opened = open_artifact(artifact, check=False, on_cpu=False)
    name = name or opened.manifest.name
    if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]*", name):
        raise RequestError(f"{name!r} cannot be a model's name in Triton; choose one with --name")
    model = repository / name
    destination = model / str(version)
    # A name that is no number is no version: the server leaves such folders alone.
    staging = model / f".{version}.partial"
    try:
        if destination.exists():
            raise RequestError(f"{destination} is there already; choose another --version")
        shutil.rmtree(staging, ignore_errors=True)
        staging.mkdir(parents=True)
        copy = staging / "artifact"
        shutil.copytree(opened.root, copy)
        open_artifact(copy, on_cpu=False)
        (staging / _MODEL).write_bytes(_source(_MODEL).read_bytes())
        _write_config(model, name)
        sync_tree(staging)
        staging.rename(destination)
        sync_paths([model])
    except OSError as error:
        raise SpeccompileError(f"{destination} cannot be written: {error.strerror}") from error
    return destination


def _write_config(model: Path, name: str) -> None:
    """That of a model which has one stays as it is: it is made to be edited."""
    config = model / _CONFIG
    if not config.exists():
        text = Template(_source(_CONFIG).read_text("utf-8")).substitute(name=name)
        scratch = model / f".{_CONFIG}"
        scratch.write_text(text, encoding="utf-8")
        os.replace(scratch, config)  # noqa: PTH105


def _source(name: str) -> Traversable:
    return files("speccompile.runtime.triton") / name
