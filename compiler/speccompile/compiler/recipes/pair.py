"""The table of a pair that is trained from nothing, and the folders that it is trained into."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, ValidationInfo, field_validator

from speccompile.compiler.recipes.fields import Sha256, Source
from speccompile.compiler.recipes.table import Table
from speccompile.runtime.errors import SpeccompileError

if TYPE_CHECKING:
    from speccompile.compiler.recipes.schema import Recipe

__all__ = ["T5DraftTable", "T5ModelTable", "T5Table", "check_trained", "pair_folders"]


class T5ModelTable(Table):
    """A gated T5 whose head is its table: its size, and how much it learns."""

    width: int = Field(default=96, ge=16, le=4096)
    """Channels of a row."""
    inner: int = Field(default=192, ge=16, le=16384)
    """Channels within a feed-forward."""
    heads: int = Field(default=4, ge=1, le=64)
    """Of attention, which the width is divided among."""
    encoder_layers: int = Field(default=2, ge=1, le=48)
    layers: int = Field(default=6, ge=1, le=48)
    """Of the decoder."""
    tokens: int = Field(default=3_000_000, ge=1)
    """To learn from: of texts and answers, every time they are read."""
    rate: float = Field(default=2e-3, gt=0.0, le=1.0)
    """The highest learning rate."""

    @field_validator("heads")
    @classmethod
    def _divide(cls, heads: int, info: ValidationInfo) -> int:
        width = info.data.get("width", heads)
        if width % heads:
            raise ValueError(f"is {heads}, which does not divide the width, {width}")
        return heads


class T5DraftTable(T5ModelTable):
    encoder_layers: int = Field(default=1, ge=1, le=48)
    layers: int = Field(default=1, ge=1, le=48)
    tokens: int = Field(default=1_500_000, ge=1)


class T5Table(Table):
    """How `speccompile draft t5` trains the recipe's two models, from nothing."""

    source: Source
    """A pronouncing dictionary in the form of CMUdict: a path, or `pypi:NAME==VERSION!FILE`."""
    sha256: Sha256 = None
    """Of that file; a `pypi:` source needs it."""
    vocabulary: int = Field(default=128, ge=96, le=32768)
    """Pieces, at most, that are learned of the task's own text."""
    sentences: int = Field(default=80_000, ge=100)
    """Rows of words that the target learns from."""
    answers: int = Field(default=20_000, ge=100)
    """Of these, how many it answers for the draft to learn from."""
    seed: int = Field(default=0, ge=0)
    target: T5ModelTable = T5ModelTable()
    draft: T5DraftTable = T5DraftTable()


def pair_folders(recipe: Recipe) -> Mapping[str, Path]:
    """Where target and draft of a recipe with a table `t5` lie, once they are trained.

    Raises SpeccompileError where the recipe names no folder for one of them.
    """
    sources = {
        "target": recipe.target.source,
        "draft": recipe.draft.source if recipe.draft else "target",
    }
    for role, source in sources.items():
        if source == "target" or source.startswith(("pypi:", "hf:")):
            raise SpeccompileError(
                f"{recipe.name}: {role}.source is {source}, but the pair is trained into folders; "
                f'name one, such as "{recipe.name}/{role}"'
            )
    beside = recipe.origin.parent if recipe.origin else Path.cwd()
    return {role: beside / Path(source).expanduser() for role, source in sources.items()}


def check_trained(recipe: Recipe) -> None:
    """Raise SpeccompileError where a pair is to be used before it is trained: its folders look like
    models of the hub until they are there."""
    for role, folder in pair_folders(recipe).items() if recipe.t5 else ():
        if not folder.exists():
            raise SpeccompileError(
                f"{folder}: no such folder, and {role}.source names it; "
                f"`speccompile draft t5 {recipe.origin or recipe.name}` trains the pair"
            )
