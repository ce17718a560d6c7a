"""The models of a recipe in other precisions than its own, and the stages that measure them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from speccompile.compiler.default_draft import LONGEST_DRAFT
from speccompile.compiler.pipeline import plan
from speccompile.compiler.precision import MIXED, PRECISIONS
from speccompile.compiler.recipe import ModelTable, Recipe
from speccompile.compiler.stage import Stage, keys
from speccompile.runtime.errors import RequestError

__all__ = ["MEASURE_STAGE", "ROLES", "Role", "Variant", "plan_variants", "variants"]

Role = Literal["target", "draft"]
ROLES: tuple[Role, ...] = ("target", "draft")

MEASURE_STAGE = "measure precisions"

# A target verifies proposals of every length; a draft takes one step for each token, the first of
# which may have two rows.
_ROWS = {"target": list(range(1, LONGEST_DRAFT + 2)), "draft": [1, 2]}
_SHARED = frozenset({"load", "check", "reference"})
_OF_A_PRECISION = frozenset({"quantize", "export", "lower", "compile", "quality"})


@dataclass(frozen=True)
class Variant:
    """One role of `recipe`, in `precision`."""

    recipe: Recipe
    role: Role
    precision: str

    @property
    def engines(self) -> dict[str, str]:
        """By backend, what the engine is called in the names of its stages."""
        return {
            backend: f"{self.role} {backend}{self._suffix}" for backend in self.recipe.engine.cpu
        }

    def stages(self) -> Iterator[Stage]:
        """Those of a build that depend on the precision."""
        own = [
            stage
            for stage in plan(self._recipe())
            if stage.name.split()[0] in _OF_A_PRECISION and stage.name.split()[1] == self.role
        ]
        names = {stage.name: stage.name + self._suffix for stage in own}
        for stage in own:
            inputs = tuple(names.get(name, name) for name in stage.inputs)
            yield replace(stage, name=names[stage.name], inputs=inputs)

    @property
    def _suffix(self) -> str:
        # The recipe's own stages are called as in its builds, so that they are shared with them.
        own = _table(self.recipe, self.role).precision
        return "" if self.precision == own else f" {self.precision}"

    def _recipe(self) -> Recipe:
        changes: dict[str, object] = {"precision": self.precision}
        if self.role == "draft":  # a divergence from full precision needs every token
            changes["vocabulary"] = 0
        if self.precision != MIXED:
            changes["layers"] = None
        if self.precision not in ("int8", MIXED):  # what follows works on int8 layers alone
            changes |= {"outlier_threshold": 0.0, "smoothing": 0.0, "activations": "dynamic"}
        table = _table(self.recipe, self.role).model_copy(update=changes)
        return self.recipe.model_copy(update={self.role: table})


def variants(
    recipe: Recipe, roles: Sequence[Role], precisions: Sequence[str] | None = None
) -> list[Variant]:
    """The models of `roles` in `precisions`, or in all that they can have.

    "mixed" needs the table of layers that a recipe has if its own precision is that: a role without
    one leaves it out. Raises RequestError for a precision that none of the roles can have.
    """
    existing = (*PRECISIONS, MIXED)
    if unknown := [name for name in precisions or () if name not in existing]:
        raise RequestError(
            f'precision "{unknown[0]}" does not exist; choose of {", ".join(existing)}'
        )
    found = [
        Variant(recipe, role, precision)
        for role in ROLES
        if role in roles
        for precision in dict.fromkeys(existing if precisions is None else precisions)
        if precision != MIXED or _table(recipe, role).layers
    ]
    if not found:
        raise RequestError(
            f'{recipe.name}: "{MIXED}" needs precision = "{MIXED}" and a table of layers in the '
            "recipe; choose another precision"
        )
    return found


def plan_variants(
    recipe: Recipe, variants: Sequence[Variant]
) -> tuple[list[Stage], dict[str, str]]:
    """The stages that build, judge and time `variants`, and by its own name each one's name there.

    The two differ where stages are the same: a draft that is the target itself, in the target's
    precision, has the target's weights and graph. Stages that nothing needs are left out.
    """
    stages = [stage for stage in plan(recipe) if stage.name.split()[0] in _SHARED]
    stages += [stage for variant in variants for stage in variant.stages()]
    engines = [engine for variant in variants for engine in variant.engines.values()]
    stages, names = _once(stages)
    timed = {name: (names[f"lower {name}"], names[f"compile {name}"]) for name in engines}
    measure = Stage(
        MEASURE_STAGE,
        "speccompile.compiler.stages.measure_against:run",
        tuple(dict.fromkeys(name for pair in timed.values() for name in pair)),
        {
            "engines": timed,
            "rows": _ROWS,
            "threads": recipe.engine.threads,
        },
    )
    judged = [names[f"quality {name}"] for name in engines]
    return [*_needed(stages, {*measure.inputs, *judged}), measure], names


def _table(recipe: Recipe, role: Role) -> ModelTable:
    table = recipe.target if role == "target" else recipe.draft
    if table is None:
        raise ValueError("a recipe without a draft has no such role")
    return table


def _once(stages: Sequence[Stage]) -> tuple[list[Stage], dict[str, str]]:
    """Of stages with one identity the first, and by name the name of the one that stays."""
    identities = keys(stages)
    first: dict[str, str] = {}
    for name, identity in identities.items():
        first.setdefault(identity, name)
    names = {name: first[identity] for name, identity in identities.items()}
    return [
        replace(stage, inputs=tuple(names[name] for name in stage.inputs))
        for stage in stages
        if names[stage.name] == stage.name
    ], names


def _needed(stages: Sequence[Stage], goals: set[str]) -> list[Stage]:
    """Those that the stages called `goals` are made of, these included, in order."""
    needed = set(goals)
    for stage in reversed(stages):
        if stage.name in needed:
            needed.update(stage.inputs)
    return [stage for stage in stages if stage.name in needed]
