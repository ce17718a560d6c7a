"""The build as a readable list of stages, checked before anything runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from speccompile.compiler.drafts.folder import DRAFT_FILE, draft_digest, shared_layers
from speccompile.compiler.drafts.t5_folder import trained_digest
from speccompile.compiler.recipe import Recipe, check_trained
from speccompile.compiler.recipes.models import DraftingTable, ModelTable
from speccompile.compiler.stage import Stage
from speccompile.compiler.tensorrt.installed import installed_library, nvrtc_version
from speccompile.compiler.texts import builtin_text
from speccompile.runtime.errors import SpeccompileError

__all__ = ["PROBED_ROWS", "plan", "sized"]

PROBED_ROWS = (*range(1, 10), 16)
"""Row counts whose cost is measured: every draft length from 0 to 8, and one beyond."""

_SPARE_ROWS = 32
"""Cache slots beyond the context: the room of the padding that keeps rows exact."""


def plan(recipe: Recipe) -> list[Stage]:
    """The stages of `recipe`.

    Load the models, check that they fit together and into memory; run each in full precision;
    then, for each role, quantize and export, for each engine lower, compile and judge the quality,
    for GPUs lower, rehearse on the CPU and build plans, and measure the CPU's engines against each
    other. Whether plans can be built here is asked before all of it. Raises SpeccompileError where
    a recipe's pair is yet to be trained.
    """
    check_trained(recipe)
    _check_cache_sharers(recipe)
    models = {name: table for name, table in recipe.models.items() if table.source != "target"}
    stages = [*_library(recipe), *(_load(name, model) for name, model in models.items())]
    loads = [f"load {name}" for name in models]
    stages += [_check_pair(recipe, loads), _budget(recipe, loads)]
    stages += [*_kernels(recipe), *(_reference(recipe, name) for name in models)]
    stages += [stage for name in recipe.drafts for stage in _vocabulary(recipe, name)]
    for role in recipe.models:
        stages += _Role(recipe, role, role if role in models else "target").stages()
    _check_order(stages)
    return stages


def _load(name: str, model: ModelTable) -> Stage:
    settings: dict[str, object] = {"source": model.source, "sha256": model.sha256}
    if (Path(model.source) / DRAFT_FILE).is_file():
        settings["draft"] = draft_digest(Path(model.source))  # it is trained again and again
    if trained := trained_digest(Path(model.source)):
        settings["trained"] = trained  # and so is this
    return _stage(f"load {name}", "load", settings=settings)


def _check_pair(recipe: Recipe, loads: Sequence[str]) -> Stage:
    settings = {
        "context": recipe.context.length,
        "spare_rows": _SPARE_ROWS,
        "draft_of": {name: _made_of(table)[1] for name, table in recipe.drafts.items()},
    }
    return _stage("check", "check", loads, settings)


def _budget(recipe: Recipe, loads: Sequence[str]) -> Stage:
    settings = {
        "engines": list(recipe.engine.cpu),
        "memory_gb": recipe.engine.memory_gb,
        "roles": {
            role: {
                **_weights(table),
                "vocabulary": _vocabulary_size(table),
                "shares_cache": role != "target" and _shares_cache(table),
            }
            for role, table in recipe.models.items()
        },
    }
    return _stage("budget", "budget", ["check", *loads], settings)


def _reference(recipe: Recipe, name: str) -> Stage:
    calibrate, validation = recipe.calibrate, recipe.validation
    settings = {
        "calibration": {
            "text": _text(calibrate.text, "calibration"),
            "tokens": calibrate.tokens,
        },
        "evaluation": {
            "text": _text(validation.text, "evaluation"),
            "tokens": validation.evaluate_tokens,
        },
        "threads": recipe.engine.threads,
    }
    return _stage(f"reference {name}", "reference", [f"load {name}", "check"], settings)


def _vocabulary_size(table: ModelTable) -> int:
    """Tokens of a draft's head; 0 is all, as a target has."""
    return table.vocabulary if isinstance(table, DraftingTable) else 0


def _vocabulary(recipe: Recipe, name: str) -> list[Stage]:
    """For the draft `name`, where its head has fewer tokens than all."""
    table = recipe.models[name]
    if not _vocabulary_size(table):
        return []
    text = _text(recipe.calibrate.text, "calibration")
    settings = {"size": _vocabulary_size(table), "text": text}
    inputs = ["load target", "check"]
    if table.source != "target":
        inputs.append(f"load {name}")
    return [_stage(f"vocabulary {name}", "vocabulary", inputs, settings)]


@dataclass(frozen=True)
class _Role:
    """The stages of one role, whose weights are those of the model called `model`."""

    recipe: Recipe
    role: str
    model: str

    @property
    def table(self) -> ModelTable:
        return self.recipe.models[self.role]

    @property
    def layers(self) -> tuple[int, ...]:
        """The target's, where a draft is made of some."""
        return () if self.role == "target" else _made_of(self.table)[0]

    @property
    def shares_cache(self) -> bool:
        return self.role != "target" and _shares_cache(self.table)

    def stages(self) -> list[Stage]:
        role, model, weights = self.role, self.model, _weights(self.table)
        load, quantize, export = f"load {model}", f"quantize {role}", f"export {role}"
        stages = [
            _stage(quantize, "quantize", [load, "check", f"reference {model}"], weights),
            _stage(export, "export", [load, "check", quantize, f"reference {model}"]),
        ]
        for backend in self.recipe.engine.cpu:
            stages += self._engine(backend, load, quantize, export)
        stages += self._plans(load, quantize, export)
        measured = [
            f"{step} {role} {backend}"
            for backend in self.recipe.engine.cpu
            for step in ("lower", "compile")
        ]
        rows = {"threads": self.recipe.engine.threads, "rows": list(PROBED_ROWS)}
        return [*stages, _stage(f"measure {role}", "measure", measured, rows)]

    def _engine(self, backend: str, load: str, quantize: str, export: str) -> list[Stage]:
        role, threads = self.role, self.recipe.engine.threads
        lower, compile_ = f"lower {role} {backend}", f"compile {role} {backend}"
        judged = [lower, compile_, "check", load, f"reference {self.model}"]
        if self.model != "target":
            judged += ["load target", "reference target"]
        settings = {
            "role": "target" if role == "target" else "draft",
            "backend": backend,
            "precision": self.table.precision,
            # Engines that share a cache have to agree on what is in it.
            "arithmetic": _arithmetic(self.recipe.target if self.shares_cache else self.table),
            "threads": threads,
            "shares_cache": self.shares_cache,
        }
        lowered = {"backend": backend, "layers": self.layers}
        chosen = [stage.name for stage in _vocabulary(self.recipe, role)]
        return [
            _stage(lower, "lower", [export, quantize, *chosen], lowered),
            _stage(compile_, "compile", [load, "check", export, quantize, lower], settings),
            _stage(f"quality {role} {backend}", "quality", judged, {"threads": threads}),
        ]

    def _plans(self, load: str, quantize: str, export: str) -> list[Stage]:
        """For every capacity a graph, and of it a plan for every architecture; experts have none,
        as rounds on a GPU take one draft."""
        engine, role = self.recipe.engine, self.role
        if not engine.tensorrt or role not in ("target", "draft"):
            return []
        library = _installed(self.recipe)
        settings = {
            "role": role,
            "library": library["library"],
            "rule": _rule(self.recipe, role),
            "precision": self.table.precision,
            "batch": engine.batch,
            "shares_cache": self.shares_cache,
            "layers": self.layers,
        }
        stages: list[Stage] = []
        for capacity in (None, *engine.capacities):
            lower = sized(f"lower {role} tensorrt", capacity)
            slots = capacity and capacity + _SPARE_ROWS
            inputs = [load, "check", export, quantize]
            stages.append(_stage(lower, "lower_plan", inputs, {**settings, "capacity": slots}))
            if capacity is None:  # the others are the same graph, on shorter caches
                threads = {"threads": engine.threads}
                stages.append(
                    _stage(f"rehearse {role} tensorrt", "rehearse", [*inputs, lower], threads)
                )
            for architecture in engine.tensorrt:
                name = sized(f"plan {role} {architecture}", capacity)
                chosen = {**library, "architecture": architecture}
                stages.append(_stage(name, "plan", [lower, f"kernels {architecture}"], chosen))
        return stages


def _made_of(draft: ModelTable) -> tuple[tuple[int, ...], str | None]:
    """The layers that a shared draft is made of, and the SHA-256 of the target that they are of;
    of other drafts none."""
    return shared_layers(draft.source) or ((), None)


def _shares_cache(draft: ModelTable) -> bool:
    """Whether a draft works in the target's cache: where it is the target, or layers of it."""
    return draft.source == "target" or bool(_made_of(draft)[0])


def _check_cache_sharers(recipe: Recipe) -> None:
    """At most one draft: the rows that a second wrote in the same slots would be the first's."""
    sharing = [name for name, table in recipe.drafts.items() if _shares_cache(table)]
    if len(sharing) > 1:
        raise SpeccompileError(
            f"{recipe.name}: {' and '.join(sharing)} would work in the target's cache, which one "
            "draft at most can; give the others weights of their own, or leave them out"
        )


def sized(name: str, capacity: int | None) -> str:
    """The name of what there is for a capacity of `engine.capacities`, or for the whole context."""
    return f"{name}-{capacity}" if capacity else name


def _library(recipe: Recipe) -> list[Stage]:
    if not recipe.engine.tensorrt:
        return []
    settings = {**_installed(recipe), "architectures": list(recipe.engine.tensorrt)}
    return [_stage("library", "library", settings=settings)]


def _installed(recipe: Recipe) -> dict[str, str]:
    library = installed_library(recipe.engine.tensorrt_library)
    return {"library": library.name, "version": library.version}


def _kernels(recipe: Recipe) -> list[Stage]:
    architectures = recipe.engine.tensorrt
    settings = {"nvrtc": nvrtc_version()} if architectures else {}
    return [
        _stage(f"kernels {name}", "kernels", (), {**settings, "architecture": name})
        for name in architectures
    ]


def _rule(recipe: Recipe, role: str) -> str:
    """A draft's tokens are drawn from its law; where a model drafts, whole paths are judged."""
    return "traversal" if role == "target" and recipe.draft else "walk"


def _stage(
    name: str,
    module: str,
    inputs: Sequence[str] = (),
    settings: Mapping[str, object] | None = None,
) -> Stage:
    run = f"speccompile.compiler.stages.{module}:run"
    return Stage(name, run, tuple(inputs), settings or {})


def _weights(model: ModelTable) -> dict[str, object]:
    """What decides the bytes of a role's weights."""
    keys = ("precision", "layers", "outlier_threshold", "smoothing", "activations")
    return {key: getattr(model, key) for key in keys}


def _arithmetic(model: ModelTable) -> str:
    """What is asked of an engine for `model`; not all can."""
    return "bf16" if model.precision == "bf16" else "fp32"


def _text(file: Path | None, name: str) -> str:
    return file.read_text(encoding="utf-8") if file else builtin_text(name)


def _check_order(stages: Sequence[Stage]) -> None:
    done: set[str] = set()
    for stage in stages:
        if missing := [name for name in stage.inputs if name not in done]:
            raise SpeccompileError(
                f"stage {stage.name!r} needs {', '.join(missing)} before it; "
                f"the order is {', '.join(entry.name for entry in stages)}"
            )
        if stage.name in done:
            raise SpeccompileError(f"stage {stage.name!r} stands twice in the pipeline")
        done.add(stage.name)
