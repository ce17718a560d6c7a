"""The drafts that come with the catalogue: whole, small, and as their recipe and card say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from speccompile.compiler.drafts.folder import DRAFT_FILE, draft_digest
from speccompile.compiler.recipe import Recipe, catalogue, load_recipe
from speccompile.compiler.sources.digest import file_sha256
from speccompile.compiler.weights import WEIGHTS_FILE

RECIPES = [
    recipe
    for recipe in map(load_recipe, catalogue())
    if recipe.draft and recipe.origin and "/drafts/" in recipe.draft.source
]
RECIPE = pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.name)


def _folder(recipe: Recipe) -> Path:
    assert recipe.draft
    return Path(recipe.draft.source)


def _described(recipe: Recipe) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((_folder(recipe) / DRAFT_FILE).read_text("utf-8"))
    return content


def test_there_is_one() -> None:
    assert [recipe.name for recipe in RECIPES] == ["smollm2-135m-distilled"]


@RECIPE
def test_it_is_whole_and_small(recipe: Recipe) -> None:
    weights = _folder(recipe) / WEIGHTS_FILE
    assert draft_digest(_folder(recipe)) == file_sha256(weights)
    assert weights.stat().st_size <= 16e6
    assert sorted(file.name for file in _folder(recipe).iterdir()) == [
        "README.md",
        DRAFT_FILE,
        WEIGHTS_FILE,
    ]


@RECIPE
def test_the_recipe_is_what_trained_it(recipe: Recipe) -> None:
    described = _described(recipe)
    assert described["target"]["source"] == recipe.target.source
    assert described["target"]["sha256"] == recipe.target.sha256
    assert recipe.distil
    assert described["training"]["settings"] == recipe.distil.model_dump(mode="json")


@RECIPE
def test_the_card_tells_the_figures_of_the_training(recipe: Recipe) -> None:
    card, training = (
        (_folder(recipe) / "README.md").read_text("utf-8"),
        _described(recipe)["training"],
    )
    for kind, found in training["held_out_int8"].items():
        positions = " ".join(f"{share:.2f}" for share in found["positions"])
        assert f"| {kind} | {positions} | {found['tokens_a_round']:.2f} |" in card
    for count in ("tokens", "responses", "response_tokens"):
        assert f"{training[count]:,}" in card
