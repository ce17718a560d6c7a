"""From the name or the file of a recipe to the recipe, or to every mistake in it at once."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from pydantic import ValidationError

from speccompile.compiler.recipes.catalogue import catalogue
from speccompile.compiler.recipes.mistakes import did_you_mean, explain
from speccompile.compiler.recipes.schema import Recipe
from speccompile.runtime.errors import SpeccompileError

__all__ = ["RecipeError", "load_recipe"]


class RecipeError(SpeccompileError):
    """A recipe is absent, unreadable or wrong; the message has one line per mistake."""

    exit_code = 2


def load_recipe(name_or_path: str, *, engine: Mapping[str, object] | None = None) -> Recipe:
    """Load the recipe at a path that ends in `.toml`, or the catalogue's recipe of that name.

    The keys of `engine` stand in place of the file's in that table. Raises `RecipeError`: no such
    recipe, a syntax error, or every mistake against the schema.
    """
    path = Path(name_or_path) if name_or_path.endswith(".toml") else catalogue().get(name_or_path)
    if path is None:
        raise RecipeError(_no_such_recipe(name_or_path))
    try:
        tables = _read(path)
        stated = tables.get("engine", {})
        if engine and isinstance(stated, dict):
            tables["engine"] = {**stated, **engine}
        return Recipe.model_validate(tables, context=path.absolute())
    except FileNotFoundError:
        raise RecipeError(_no_such_recipe(name_or_path)) from None
    except OSError as error:
        raise RecipeError(f"{path}: cannot read {error.filename}: {error.strerror}") from None
    except ValidationError as error:
        lines = [f"{path}: {explain(detail)}" for detail in error.errors(include_url=False)]
        raise RecipeError("\n".join(lines)) from None


def _read(path: Path) -> dict[str, object]:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise RecipeError(f"{path}: not UTF-8 at byte {error.start}; save it as UTF-8") from None
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        # Before Python 3.14 the position is in the message alone.
        reason, _, position = str(error).removesuffix(")").partition(" (at ")
        found = re.match(r"line (\d+)", position)
        line = found[1] if found else len(text.splitlines())  # "end of document"
        raise RecipeError(f"{path}:{line}: {reason}") from None


def _no_such_recipe(name_or_path: str) -> str:
    names = list(catalogue())
    question = did_you_mean(Path(name_or_path).name.removesuffix(".toml"), names)
    way_out = f"{question} the catalogue has {', '.join(names)}".lstrip()
    return f"{name_or_path}: no such recipe; {way_out}"
