"""The catalogue: the recipes that come with speccompile."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

__all__ = ["catalogue"]


def catalogue() -> dict[str, Path]:
    """The recipes that come with speccompile, by name, sorted."""
    try:
        folder: Traversable = resources.files("speccompile.recipes")
    except ModuleNotFoundError:
        # An editable checkout has compiler/, runtime/ and plugins/ on sys.path, but not recipes/.
        folder = Path(__file__).parents[4] / "recipes"
    files = sorted(Path(str(entry)) for entry in folder.iterdir() if entry.name.endswith(".toml"))
    return {file.stem: file for file in files}
