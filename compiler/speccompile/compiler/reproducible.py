"""Whether a recipe gives the same artifact twice: it is built again from nothing, and compared."""

from __future__ import annotations

import tempfile
from pathlib import Path

from speccompile.compiler.build import Built, build
from speccompile.compiler.cache import StageCache, cache_limit
from speccompile.compiler.execute import Observer
from speccompile.compiler.recipe import Recipe
from speccompile.runtime.errors import SpeccompileError
from speccompile.runtime.files import MANIFEST_NAME
from speccompile.runtime.manifest import Manifest

__all__ = ["first_difference", "verify_reproducible"]

_DOWNLOADS = "downloads"


def verify_reproducible(recipe: Recipe, built: Built, *, cache: Path, observer: Observer) -> None:
    """Build `recipe` once more, with no stage of `cache` but its downloads, and compare with what
    was `built` before.

    The second artifact is made beside the first one, and removed. Raises SpeccompileError naming
    the first file that differs.
    """
    with (
        StageCache(cache, cache_limit()) as first,  # while it is in use, no download is removed
        tempfile.TemporaryDirectory(dir=built.path.parent, prefix=f".{built.path.name}.") as place,
    ):
        again = Path(place) / "cache"
        again.mkdir()
        (first.root / _DOWNLOADS).mkdir(exist_ok=True)
        (again / _DOWNLOADS).symlink_to(first.root / _DOWNLOADS)
        second = build(recipe, Path(place) / built.path.name, cache=again, observer=observer)
    if path := first_difference(built.manifest, second.manifest):
        raise SpeccompileError(
            f"{built.path}: is built, but not reproducible: {path!r} of a second build differs"
            f"{_reason(built.manifest, second.manifest, path)}"
        )


def first_difference(one: Manifest, other: Manifest) -> str | None:
    """The first path, in order, of a file that differs or that one of two artifacts lacks."""
    for path in sorted(one.files.keys() | other.files.keys()):
        if one.files.get(path) != other.files.get(path):
            return path
    return None if one == other else MANIFEST_NAME


def _reason(one: Manifest, other: Manifest, path: str) -> str:
    """What is known to differ from build to build."""
    for name, engine in one.engines.items():
        backend = other.engines[name].backend
        if backend != engine.backend:
            return (
                f"; {engine.backend} measured faster for the {name} in one, {backend} in the "
                "other: name one in engine.cpu"
            )
    if path.endswith(".plan"):
        return "; TensorRT writes the same plan in another order every time"
    return ""
