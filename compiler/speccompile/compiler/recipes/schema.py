"""The tables of a recipe. Whatever can be known from the file alone is checked here.

A mistake costs a build of minutes if it is found late, so every field says what it may hold.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationInfo, field_validator

from speccompile.compiler.recipes.fields import (
    Architectures,
    Capacities,
    Engines,
    FigureCommand,
    File,
    Line,
)
from speccompile.compiler.recipes.models import (
    DraftingTable,
    DraftTable,
    ExpertTable,
    ModelTable,
    TargetTable,
)
from speccompile.compiler.recipes.pair import T5Table
from speccompile.compiler.recipes.table import Table

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
    "SharedTable",
    "Table",
    "TargetTable",
    "ValidateTable",
]


class DistilTable(Table):
    """How `speccompile draft distil` makes a draft of the target."""

    count: int = Field(default=4, ge=1, le=64)
    """Layers of the draft."""
    layers: Annotated[tuple[int, ...], Field(strict=False)] = ()
    """Which of the target's they are at first; empty: the first ones, and of the last ones every
    second."""
    cache: Literal["target", "own"] = "target"
    """In which it works: in the target's it sees what those layers of the target made of the text,
    in its own what its layers make of it."""
    vocabulary: int = Field(default=8192, ge=0)
    """Tokens that it learns to propose, those that the target says most; 0 is all."""
    own: File | None = None
    """A .txt, .jsonl or .jsonl.gz file of prompts, which come before those built in."""
    prompts: int = Field(default=4096, ge=1)
    """Prompts that the target answers, half of the answers greedy."""
    length: int = Field(default=128, ge=8, le=4096)
    """Tokens of an answer, at most."""
    tokens: int = Field(default=2_500_000, ge=1)
    """Tokens to learn from, prompts included, every time they are read."""
    rate: float = Field(default=2e-3, gt=0.0, le=1.0)
    """The highest learning rate."""
    seed: int = Field(default=0, ge=0)


class SharedTable(Table):
    """How `speccompile draft shared` makes a draft of the target's own layers."""

    count: int | None = Field(default=None, ge=1)
    """Layers of the draft; None is as many as are predicted to be fastest."""
    layers: Annotated[tuple[int, ...], Field(strict=False)] = ()
    """Which of the target's they are, rising; empty: those that a search finds."""
    search: int = Field(default=500, ge=1)
    """Evaluations of acceptance that the search may use; one round, in which each layer is left out
    once, is always made."""
    vocabulary: int = Field(default=8192, ge=0)
    """As in `DistilTable`, and so are the keys of prompts and answers: what was answered for one is
    found by the other."""
    own: File | None = None
    prompts: int = Field(default=4096, ge=1)
    length: int = Field(default=128, ge=8, le=4096)
    tokens: int = Field(default=500_000, ge=1)
    """Tokens that the norms learn from, prompts included, every time they are read."""
    rate: float = Field(default=2e-3, gt=0.0, le=1.0)
    """The highest learning rate."""
    seed: int = Field(default=0, ge=0)

    @field_validator("layers")
    @classmethod
    def _rise(cls, layers: tuple[int, ...]) -> tuple[int, ...]:
        if any(after <= before for before, after in pairwise(layers)):
            raise ValueError("must rise: the draft computes them in this order")
        return layers


class EngineTable(Table):
    """Where the models may run: on the CPU always, on the GPUs that are listed beside it."""

    cpu: Engines = ("openvino", "onnxruntime")
    """The build measures every engine listed and keeps the fastest."""
    tensorrt: Architectures = ()
    """GPU architectures to compile TensorRT plans for, such as "sm89". Needs no GPU."""
    tensorrt_library: Literal["auto", "tensorrt", "tensorrt_rtx"] = "auto"
    """"auto" is `tensorrt` where it is installed, else `tensorrt_rtx`."""
    capacities: Capacities = ()
    """Of further plans, in tokens, below context.length: on a GPU the cost of a step follows the
    capacity of the cache, not what is in it."""
    batch: int = Field(default=1, ge=1, le=64)
    """Sequences that a plan can decode together, at most; sessions decode one so far."""
    threads: int = Field(default=0, ge=0)
    """0 is all cores."""
    memory_gb: float | None = Field(default=None, gt=0)
    """The most that target, draft and both caches may take at run time, in 10^9 bytes."""


class ContextTable(Table):
    length: int = Field(default=2048, ge=64, le=131072, multiple_of=32)
    """Capacity of the key-value caches, in tokens."""


class CalibrateTable(Table):
    """What activations are observed on, for outliers, smoothing and static scales."""

    text: File | None = None
    """A text file; None is the built-in text."""
    tokens: int = Field(default=2048, ge=256, le=65536)
    """Tokens of it that are read."""


class ValidateTable(Table):
    """What the build must prove before it packs an artifact."""

    prompts: File | None = None
    """A .txt or .jsonl file; None is the built-in prompts."""
    tokens: int = Field(default=64, ge=1, le=4096)
    """Tokens generated per prompt."""
    min_acceptance: float = Field(default=0.0, ge=0.0, le=1.0)
    """The least share of drafted tokens that the target must accept."""
    max_perplexity_increase: float | None = Field(default=None, ge=0.0)
    """The most that the target's perplexity may grow over its FP32 weights', relative: 0.02 is 2 %.
    None does not ask."""
    text: File | None = None
    """The text file perplexity is measured on; None is the built-in text."""
    evaluate_tokens: int = Field(default=2048, ge=256, le=65536)
    """Tokens of it that are read."""


class ArtifactTable(Table):
    """What goes into the artifact beyond what it needs to run."""

    keep_onnx: bool = False
    """Whether to keep the ONNX graphs that were lowered."""


class Figure(Table):
    """A number that the recipe's author vouches for."""

    name: Line = Field(min_length=1)
    value: float
    unit: Line
    """Empty for a bare number."""
    kind: Literal["measured", "expected"]
    command: FigureCommand = ""
    """The command that measured it."""
    note: str = ""
    """Where it was measured, or how it was estimated."""


class Recipe(Table):
    """A whole recipe, defaults filled in and paths absolute. Frozen."""

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9._-]*$")
    description: str = ""
    purpose: Line = ""
    """What one would choose it for."""
    target: TargetTable
    draft: DraftTable | None = None
    """None drafts from n-grams of the text alone."""
    engine: EngineTable = EngineTable()
    context: ContextTable = Field(default=ContextTable(), validate_default=True)
    calibrate: CalibrateTable = CalibrateTable()
    # `validate` is taken: pydantic's BaseModel has a method of that name.
    validation: ValidateTable = Field(default=ValidateTable(), alias="validate")
    artifact: ArtifactTable = ArtifactTable()
    distil: DistilTable | None = None
    """None is the defaults, where a draft is made; a build does not read it."""
    shared: SharedTable | None = None
    """None is the defaults, where such a draft is made; a build does not read it."""
    t5: T5Table | None = None
    """Where the pair is trained from nothing; a build does not read it."""
    figures: Annotated[tuple[Figure, ...], Field(strict=False)] = ()
    _origin: Path | None = None

    def model_post_init(self, context: object, /) -> None:
        """Keep the recipe's path, which `load_recipe` passes as pydantic's validation context."""
        self._origin = context if isinstance(context, Path) else None

    @property
    def origin(self) -> Path | None:
        """The absolute path of the file this recipe was loaded from."""
        return self._origin

    @property
    def drafts(self) -> dict[str, DraftingTable]:
        """The tables of the drafts by the names of their engines: "draft", then the experts."""
        if self.draft is None:
            return {}
        return {"draft": self.draft, **{expert.name: expert for expert in self.draft.experts}}

    @property
    def models(self) -> dict[str, ModelTable]:
        """The tables of all models by the names of their engines, the target's first."""
        return {"target": self.target, **self.drafts}

    def written(self) -> dict[str, dict[str, Any]]:
        """The tables of `models` as `canonical` has them: paths are the author's."""
        tables = json.loads(self.canonical())
        draft = tables["draft"]
        drafts = (
            {"draft": draft, **{each["name"]: each for each in draft["experts"]}} if draft else {}
        )
        return {"target": tables["target"], **drafts}

    def canonical(self) -> str:
        """The recipe as canonical JSON: sorted keys, no spaces, defaults written out, UTF-8 text.

        Equal recipes give equal text wherever they lie: `origin` is left out, and paths in its
        folder are written relative to it. So are `distil`, `shared` and `t5`, which no build reads.
        `layers` is a list of pairs, for their order matters.
        """
        tables = self.model_dump(
            mode="json", by_alias=True, context=self._origin, exclude={"distil", "shared", "t5"}
        )
        return json.dumps(tables, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @field_validator("context")
    @classmethod
    def _holds_capacities(cls, table: ContextTable, info: ValidationInfo) -> ContextTable:
        engine = info.data.get("engine")
        for capacity in engine.capacities if isinstance(engine, EngineTable) else ():
            if capacity >= table.length:
                excess = f"holds {table.length} tokens, but engine.capacities has {capacity}"
                raise ValueError(f"{excess}; a plan for the whole context is always built")
        return table

    @field_validator("validation")
    @classmethod
    def _fits_context(cls, table: ValidateTable, info: ValidationInfo) -> ValidateTable:
        context = info.data.get("context")
        if isinstance(context, ContextTable) and table.tokens > context.length:
            excess = f"generates {table.tokens} tokens, but context.length is {context.length}"
            raise ValueError(f"{excess}; lower validate.tokens or raise context.length")
        return table
