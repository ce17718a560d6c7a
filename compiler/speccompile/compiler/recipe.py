"""Recipes: the TOML files that say what to build. Import what a recipe is and does from here.

================  ==================================================================
`recipes.schema`    the tables and their fields
`recipes.models`    those that describe a model
`recipes.pair`      the table of a pair that is trained from nothing, and its folders
`recipes.fields`    the types of fields that are more than a number in a range
`recipes.paths`     paths, relative to the recipe's folder
`recipes.loading`   from a name or a file to a `Recipe`
`recipes.mistakes`  a mistake in one line, with its way out
`recipes.catalogue` the recipes that come with speccompile
`recipes.writing`   a first recipe for given models
================  ==================================================================
"""

from __future__ import annotations

from speccompile.compiler.recipes.catalogue import catalogue
from speccompile.compiler.recipes.loading import RecipeError, load_recipe
from speccompile.compiler.recipes.pair import (
    T5DraftTable,
    T5ModelTable,
    T5Table,
    check_trained,
    pair_folders,
)
from speccompile.compiler.recipes.schema import (
    ArtifactTable,
    CalibrateTable,
    ContextTable,
    DistilTable,
    DraftTable,
    EngineTable,
    ExpertTable,
    Figure,
    ModelTable,
    Recipe,
    SharedTable,
    TargetTable,
    ValidateTable,
)

__all__ = [
    "ArtifactTable",
    "CalibrateTable",
    "ContextTable",
    "DistilTable",
    "DraftTable",
    "EngineTable",
    "ExpertTable",
    "Figure",
    "ModelTable",
    "Recipe",
    "RecipeError",
    "SharedTable",
    "T5DraftTable",
    "T5ModelTable",
    "T5Table",
    "TargetTable",
    "ValidateTable",
    "catalogue",
    "check_trained",
    "load_recipe",
    "pair_folders",
]
