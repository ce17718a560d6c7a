"""Small artifacts that differ in their weights, and so in their identity."""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from pathlib import Path

from speccompile.runtime.artifact import list_files, read_manifest
from speccompile.runtime.files import FileEntry
from speccompile.runtime.measurements import unmeasured
from tests.table_artifact import write_artifact

__all__ = ["WEIGHTS", "Tree", "read_tree", "write_release"]

WEIGHTS = "engines/target.onnx"

Tree = dict[str, bytes]


def write_release(root: Path, weights: bytes) -> Path:
    """The artifact in the folder `root`, with plans for a GPU that is not here."""
    write_artifact(root)
    (root / WEIGHTS).write_bytes(weights)
    manifest = read_manifest(root)
    entry = FileEntry(sha256(weights).hexdigest(), len(weights), "engine")
    manifest = replace(manifest, files={**manifest.files, WEIGHTS: entry})
    (root / "manifest.json").write_bytes(manifest.to_bytes())
    (root / "measurements.json").write_bytes(unmeasured(manifest).to_bytes())
    return root


def read_tree(root: Path) -> Tree:
    """The content of every file, nothing where there is no folder."""
    return {path: (root / path).read_bytes() for path in list_files(root)} if root.exists() else {}
