"""The catalogue, its files and the document that lists them say the same."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

from speccompile.compiler.recipe import Recipe, catalogue, load_recipe
from speccompile.compiler.recipes.schema import Table

ROOT = Path(__file__).parents[3]
DOCUMENT = (ROOT / "docs" / "recipes.md").read_text(encoding="utf-8")


@pytest.fixture(params=list(catalogue()))
def recipe(request: pytest.FixtureRequest) -> Recipe:
    name: str = request.param
    return load_recipe(name)


def test_recipe_is_named_after_its_file_and_says_what_it_is_for(recipe: Recipe) -> None:
    assert recipe.origin == catalogue()[recipe.name]
    assert recipe.description
    assert recipe.purpose


def test_recipe_names_the_license_of_every_model(recipe: Recipe) -> None:
    assert recipe.target.license
    assert recipe.draft is None or recipe.draft.source == "target" or recipe.draft.license


def test_figures_can_be_checked(recipe: Recipe) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    for figure in recipe.figures:
        assert figure.note
        if figure.kind == "measured":
            assert f"`{figure.command}`" in readme
            assert re.search(rf"(?<![\d.]){figure.value:g}0?(?![\d.]\d)", readme)


def test_recipes_of_a_checkout_are_all_in_the_catalogue() -> None:
    assert {file.stem for file in (ROOT / "recipes").glob("*.toml")} == set(catalogue())


def test_document_lists_the_catalogue() -> None:
    rows = [line for line in DOCUMENT.splitlines() if "](../recipes/" in line]
    assert rows == [_row(load_recipe(name)) for name in catalogue()]


def test_document_explains_every_key_and_no_other() -> None:
    section = DOCUMENT.partition("## The keys")[2]
    cells = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    assert sorted(re.findall(r"`([\w.]+)`", "".join(cells))) == sorted(_keys())


def test_catalogue_is_found_as_package_data_of_a_wheel(tmp_path: Path) -> None:
    packaged = tmp_path / "speccompile" / "recipes"
    packaged.mkdir(parents=True)
    (packaged / "b.toml").touch()
    (packaged / "a.toml").touch()
    (packaged / "notes.md").touch()
    program = "from speccompile.compiler.recipe import catalogue; print(*catalogue().items())"
    output = subprocess.check_output(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": str(tmp_path)}, text=True
    )
    expected = {"a": packaged / "a.toml", "b": packaged / "b.toml"}
    assert output.strip() == " ".join(map(str, expected.items()))


def _row(recipe: Recipe) -> str:
    """What docs/recipes.md must say of a recipe."""
    draft = recipe.draft
    written = json.loads(recipe.canonical())  # whether there is a folder or not
    licenses = [recipe.target.license, draft.license if draft else ""]
    cells = (
        f"[{recipe.name}](../recipes/{recipe.name}.toml)",
        f"`{written['target']['source']}`",
        f"`{written['draft']['source']}`" if draft else "n-grams",
        recipe.purpose,
        ", ".join(dict.fromkeys(filter(None, licenses))),
    )
    return f"| {' | '.join(cells)} |"


def _keys(of: type[Table] = Recipe) -> list[str]:
    """Every key of a recipe, dotted. Tables are no keys, but for the optional one."""
    keys = ["draft"] if of is Recipe else []
    for name, field in of.model_fields.items():
        key, kinds = field.alias or name, (field.annotation, *get_args(field.annotation))
        tables = [kind for kind in kinds if isinstance(kind, type) and issubclass(kind, Table)]
        keys += [f"{key}.{sub}" for table in tables for sub in _keys(table)] or [key]
    return keys
