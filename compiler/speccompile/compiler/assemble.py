"""Put an artifact together from the results of the stages."""

from __future__ import annotations

import json
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from statistics import mean
from typing import Any

from speccompile.compiler.execute import StageResult
from speccompile.compiler.file_entries import hash_tree
from speccompile.compiler.gpu_engines import assemble_gpus
from speccompile.compiler.quality import Quality
from speccompile.compiler.recipe import Recipe
from speccompile.compiler.runtime_wheel import wheel_name, write_wheel
from speccompile.compiler.stages.check import Checked
from speccompile.compiler.stages.compile import Compiled
from speccompile.compiler.stages.export import CONTRACT_FILE, ENCODER_FILE
from speccompile.compiler.stages.load import Loaded
from speccompile.compiler.stages.lower import (
    ENCODER_WEIGHTS_FILE,
    GRAPH_FILE,
    GRAPH_WEIGHTS_FILE,
)
from speccompile.compiler.stages.measure import read_costs
from speccompile.compiler.stages.quality import read_quality
from speccompile.compiler.stored_once import write_beside
from speccompile.compiler.weights import WEIGHTS_FILE
from speccompile.compiler.zipapp import write_zipapp
from speccompile.runtime.files import MANIFEST_NAME, MEASUREMENTS_NAME
from speccompile.runtime.host import cpu_flags
from speccompile.runtime.manifest import (
    SCHEMA_VERSION,
    EngineInfo,
    Manifest,
    ModelInfo,
    Requirements,
)
from speccompile.runtime.measurements import Measurements
from speccompile.runtime.prompts import CHAT_TEMPLATE_FILE, TOKENIZER_FILE

__all__ = [
    "REPORTS_FOLDER",
    "Candidate",
    "assemble",
    "candidates",
    "choose",
    "write_manifest",
    "write_measurements",
]

REPORTS_FOLDER = "reports"

_DRAFT_FILE = "draft.onnx"
"""In the folder of its target, where the two have weights in common."""

_ROLES = {
    "engines": "engine",
    "model": "contract",
    "tokenizer": "tokenizer",
    "run.pyz": "runtime",
}
_MEASURED_ROLES = {REPORTS_FOLDER: "report"}

# The engines compile their kernels when they open, for the processor they find; this is the least
# their x86-64 builds run on. What else the build host had is not required, only recorded.
_RELIED_ON = ("avx2", "fma", "f16c")
# Elsewhere an engine asked for bf16 would compute in another arithmetic.
_RELIED_ON_FOR_BF16 = ("avx512_bf16", "amx_bf16")


@dataclass(frozen=True)
class Candidate:
    """One measured engine for one role: what its steps cost in milliseconds, how close it is to the
    contract (`accuracy`) and to full precision (`quality`), and the folder with its graph."""

    engine: EngineInfo
    cost_ms: Mapping[int, float]
    accuracy: Mapping[str, float]
    quality: Quality
    folder: Path

    @property
    def bytes(self) -> int:
        """Of the graphs and their weights."""
        return sum((self.folder / name).stat().st_size for name in self.files)

    @property
    def files(self) -> tuple[str, ...]:
        """What an artifact takes of the folder, the tokens of a restricted head excepted."""
        reads = self.engine.encoder and not self.engine.shares_cache
        encoder = (ENCODER_FILE, ENCODER_WEIGHTS_FILE) if reads else ()
        return (GRAPH_FILE, GRAPH_WEIGHTS_FILE, *encoder)


def candidates(recipe: Recipe, results: Mapping[str, StageResult]) -> dict[str, list[Candidate]]:
    """What was measured for every role."""
    found: dict[str, list[Candidate]] = {}
    for role in recipe.models:
        costs = read_costs(results[f"measure {role}"].folder)
        for backend in recipe.engine.cpu:
            compiled = Compiled.read(results[f"compile {role} {backend}"].folder)
            quality = read_quality(results[f"quality {role} {backend}"].folder)
            folder = results[f"lower {role} {backend}"].folder
            found.setdefault(role, []).append(
                Candidate(compiled.engine, costs[backend], compiled.accuracy, quality, folder)
            )
    return found


def choose(measured: Mapping[str, Sequence[Candidate]]) -> dict[str, Candidate]:
    """The best engine of every role.

    What counts is a round: four draft steps, and one target step of five rows; of several drafts,
    the mean of their rounds. Targets whose rows are exact come first, and engines that share a
    cache are of one backend.
    """
    sets: list[dict[str, Candidate]] = []
    for target in measured["target"]:
        able = {
            role: [draft for draft in among if _can_draft(draft, target)]
            for role, among in measured.items()
            if role != "target"
        }
        if all(able.values()):
            drafts = {role: min(among, key=_step_ms) for role, among in able.items()}
            sets.append({"target": target, **drafts})
    return min(sets, key=_round_cost)


def _can_draft(draft: Candidate, target: Candidate) -> bool:
    return not draft.engine.shares_cache or draft.engine.backend == target.engine.backend


def _step_ms(candidate: Candidate) -> float:
    return candidate.cost_ms[1]


def _round_cost(chosen: Mapping[str, Candidate]) -> tuple[bool, float]:
    target = chosen["target"]
    drafting = [4 * _step_ms(draft) for role, draft in chosen.items() if role != "target"]
    return target.engine.min_rows == 0, target.cost_ms[5] + (mean(drafting) if drafting else 0.0)


def assemble(
    staging: Path,
    recipe: Recipe,
    results: Mapping[str, StageResult],
    chosen: Mapping[str, Candidate],
) -> Manifest:
    """Fill `staging` with engines, tokenizer, runtime and, if the recipe wants them, contracts;
    returns a manifest that has no files."""
    model = Checked(results["load target"].folder, results["check"].folder)
    loaded = model.loaded
    engines: dict[str, EngineInfo] = {}
    for role, candidate in chosen.items():
        graph = Path("engines/cpu") / role / GRAPH_FILE
        if role != "target" and _same_weights(candidate, chosen["target"]):
            beside = staging / "engines/cpu/target" / GRAPH_FILE
            graph = graph.parent.with_name("target") / _DRAFT_FILE
            write_beside(candidate.folder / GRAPH_FILE, beside, _DRAFT_FILE)
        else:
            (staging / graph).parent.mkdir(parents=True)
            for name in candidate.files:
                shutil.copyfile(candidate.folder / name, staging / graph.with_name(name))
        folder, encoder = graph.parent, None
        if ENCODER_FILE in candidate.files:
            encoder = str(folder / ENCODER_FILE)
        engine = replace(candidate.engine, graph=str(graph), encoder=encoder)
        if engine.token_ids:
            shutil.copyfile(
                candidate.folder / engine.token_ids, staging / folder / engine.token_ids
            )
            engine = replace(engine, token_ids=str(folder / engine.token_ids))
        engines[role] = engine
        if recipe.artifact.keep_onnx:
            _write_contract(staging / "model" / role, role, results)
    gpus = assemble_gpus(staging, recipe, results)
    _write_tokenizer(staging, loaded.tokenizer)
    write_zipapp(staging / "run.pyz")
    write_wheel(staging)
    return Manifest(
        schema=SCHEMA_VERSION,
        name=recipe.name,
        compiler_version=version("speccompile"),
        model=ModelInfo(
            vocab_size=model.config.vocab_size,
            context_length=recipe.context.length,
            layers=loaded.config.layers,
            kv_heads=loaded.config.kv_heads,
            head_dim=loaded.config.head_dim,
            bos_token_id=loaded.tokenizer["bos_token_id"],
            eos_token_ids=tuple(loaded.tokenizer["eos_token_ids"]),
            start_token_id=model.config.encoder.start_token if model.config.encoder else None,
        ),
        engines=engines,
        requires=_requirements(engines),
        provenance=_provenance(recipe, results),
        files={},
        gpus=gpus,
    )


def write_manifest(staging: Path, manifest: Manifest) -> Manifest:
    """Hash every file of `staging` and write the manifest over them."""
    roles = {**_ROLES, wheel_name(): "runtime"}
    manifest = replace(manifest, files=hash_tree(staging, roles))
    (staging / MANIFEST_NAME).write_bytes(manifest.to_bytes())
    return manifest


def write_measurements(
    staging: Path, manifest: Manifest, measurements: Measurements
) -> Measurements:
    """Hash the reports, which are all that the manifest lacks, and write the measurements."""
    files = hash_tree(staging, _MEASURED_ROLES, listed=manifest.files)
    measurements = replace(measurements, files=files)
    (staging / MEASUREMENTS_NAME).write_bytes(measurements.to_bytes())
    return measurements


def _same_weights(draft: Candidate, target: Candidate) -> bool:
    """Whether a draft is the target or layers of it, in the same precision: one at most is."""
    return draft.engine.shares_cache and draft.engine.precision == target.engine.precision


def _write_contract(folder: Path, role: str, results: Mapping[str, StageResult]) -> None:
    """The graph and, beside it, the weights that it refers to by name."""
    folder.mkdir(parents=True)
    exported = results[f"export {role}"].folder
    for name in (CONTRACT_FILE, ENCODER_FILE):
        if (exported / name).exists():
            shutil.copyfile(exported / name, folder / name)
    shutil.copyfile(results[f"quantize {role}"].folder / WEIGHTS_FILE, folder / WEIGHTS_FILE)


def _write_tokenizer(staging: Path, tokenizer: Mapping[str, Any]) -> None:
    path = staging / TOKENIZER_FILE
    path.parent.mkdir()
    path.write_text(tokenizer["tokenizer_json"], encoding="utf-8")
    if tokenizer["chat_template"]:
        (staging / CHAT_TEMPLATE_FILE).write_text(tokenizer["chat_template"], encoding="utf-8")


def _requirements(engines: Mapping[str, EngineInfo]) -> Requirements:
    packages = {engine.backend for engine in engines.values()} | {"tokenizers"}
    have = cpu_flags() or frozenset()
    in_bf16 = any(engine.arithmetic == "bf16" for engine in engines.values())
    needed = _RELIED_ON + (_RELIED_ON_FOR_BF16 if in_bf16 else ())
    return Requirements(
        architecture=platform.machine(),
        cpu_flags=tuple(flag for flag in needed if flag in have),
        packages={name: ".".join(version(name).split(".")[:2]) for name in sorted(packages)},
    )


def _provenance(recipe: Recipe, results: Mapping[str, StageResult]) -> dict[str, object]:
    """The recipe, and the models by the names that it has for them, wherever they lie here."""
    found: dict[str, dict[str, object]] = {}
    for name, table in recipe.written().items():
        load = results.get(f"load {name}")  # none for a draft that is the target itself
        loaded = Loaded(load.folder).provenance if load else {}
        found[name] = {**loaded, "source": table["source"]}
    provenance: dict[str, object] = {
        "recipe": json.loads(recipe.canonical()),
        "target": found.pop("target"),
        "draft": found.pop("draft", None),
    }
    return provenance | ({"experts": found} if found else {})
