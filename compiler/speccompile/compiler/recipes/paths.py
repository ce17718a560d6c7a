"""Paths in a recipe: relative to its folder as the author wrote them, absolute once loaded."""

from __future__ import annotations

import re
from difflib import get_close_matches
from pathlib import Path

from pydantic import SerializationInfo, ValidationInfo

__all__ = ["portable", "resolve_file", "resolve_source"]

_REMOTE = re.compile(
    r"pypi:[^=!]+==[^!]+!.+"
    r"|hf:[\w.-]+/[\w.-]+(@\S+)?"
    r"|(?!\.\.?/)[\w.-]+/[\w.-]+(@\S+)?(?<!\.gguf)(?<!\.safetensors)"
)


def resolve_source(source: str, info: ValidationInfo) -> str:
    """A path is made absolute; other sources, the word "target" and `~/...` stay as written.

    A bare `a/b` may be a hub id or a folder: it is the folder if there is one beside the recipe.
    Raises ValueError for what is neither there nor the form of a model elsewhere.
    """
    if source == "target" or source.startswith(("pypi:", "hf:")):
        if source != "target" and not _REMOTE.fullmatch(source):
            raise ValueError(f"is {source}; it should be {_FORMS[source.partition(':')[0]]}")
        return source
    path = Path(source).expanduser() if source.startswith("~") else _beside_recipe(source, info)
    if path.exists():
        return source if source.startswith("~") else str(path)
    if _REMOTE.fullmatch(source):
        return source
    near = get_close_matches(path.name, _names_in(path.parent), 1)
    way_out = f"did you mean {near[0]}?" if near else "a hub id has the form ORG/NAME"
    raise ValueError(f"names {path}, which is no file or folder; {way_out}")


_FORMS = {
    "pypi": "pypi:NAME==VERSION!path/in/wheel.gguf",
    "hf": "hf:ORG/NAME or hf:ORG/NAME@REVISION",
}


def _names_in(folder: Path) -> list[str]:
    return [entry.name for entry in folder.iterdir()] if folder.is_dir() else []


def resolve_file(file: Path, info: ValidationInfo) -> Path:
    path = _beside_recipe(file, info)
    if not path.is_file():
        raise ValueError(f"names {path}, which is not a file; paths are relative to the recipe")
    return path


def _beside_recipe(path: str | Path, info: ValidationInfo) -> Path:
    # Not normalized: `folder/../x` keeps what the author wrote, so that `portable` can restore it.
    origin = info.context
    return origin.parent / path if isinstance(origin, Path) else Path(path).absolute()


def portable(path: str | Path, info: SerializationInfo) -> str:
    """Undo the resolving: where a checkout lies must not change the recipe's hash."""
    origin = info.context
    if isinstance(origin, Path) and Path(path).is_relative_to(origin.parent):
        return str(Path(path).relative_to(origin.parent))
    return str(path)
