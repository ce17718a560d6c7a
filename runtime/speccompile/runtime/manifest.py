"""`manifest.json`: what an artifact is, and what it needs.

It follows from the recipe, the models, the versions of the packages and the engines alone: nothing
measured is in it, nor the hash of a file that holds such figures. So the same build has the same
identity wherever and whenever it is repeated. What was measured is in `measurements.json`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import PurePosixPath
from typing import Literal

from speccompile.runtime.draft_names import expert_refusal
from speccompile.runtime.files import FileEntry, check_files, is_report
from speccompile.runtime.records import parse_record, record_bytes, require

__all__ = [
    "SCHEMA_VERSION",
    "EngineInfo",
    "GpuEngines",
    "Manifest",
    "ModelInfo",
    "PlanInfo",
    "Requirements",
    "parse_manifest",
]

SCHEMA_VERSION = 6
"""Of the manifest and the measurements together."""


@dataclass(frozen=True)
class ModelInfo:
    """The target's dimensions; `context_length` is the longest sequence, in tokens.

    The sequences of a target with an encoder begin with `start_token_id`, and its prompts are
    sources, which may be as long.
    """

    vocab_size: int
    context_length: int
    layers: int
    kv_heads: int
    head_dim: int
    bos_token_id: int | None
    eos_token_ids: tuple[int, ...]
    start_token_id: int | None = None


@dataclass(frozen=True)
class EngineInfo:
    """One compiled graph, at the path `graph` in the artifact.

    `precision` is that of the weights, `arithmetic` that of the sums. Steps of fewer than
    `min_rows` rows are padded to it: from there on, a row's bits do not depend on how many rows are
    computed with it (0: they always do). `capacity` counts cache slots, padding included. A draft
    that `shares_cache` works in the target's: it is the target itself, quantized, or some of its
    layers, whose caches it has by the target's numbers.

    A draft may compute some of the `vocab_size` tokens only, and propose no others: `token_ids` is
    the path of their ids, beside the graph, int32, little-endian and rising. None is all of them.

    `encoder` is the path of the graph that reads the model's source, None for a model without one
    and for a draft that `shares_cache`: it attends to what the target's encoder read.
    """

    role: Literal["target", "draft"]
    backend: Literal["openvino", "onnxruntime"]
    graph: str
    precision: Literal["fp32", "fp16", "bf16", "int8", "mixed"]
    arithmetic: Literal["fp32", "bf16"]
    layers: int
    kv_heads: int
    heads: int
    head_dim: int
    capacity: int
    vocab_size: int
    min_rows: int
    shares_cache: bool
    token_ids: str | None = None
    encoder: str | None = None


@dataclass(frozen=True)
class PlanInfo:
    """One TensorRT plan, at the path `plan` in the artifact: one role at one cache `capacity`.

    It decodes at most `batch` sequences together, with at most `rows` rows of each, and judges them
    by `rule` (`speccompile.plugins.schema`). Arithmetic, caches and logits are fp16, but for nodes
    that need fp32. A draft that `shares_cache` is bound to the target's.
    """

    role: Literal["target", "draft"]
    plan: str
    precision: Literal["fp32", "fp16", "bf16", "int8", "mixed"]
    rule: Literal["greedy", "walk", "token", "traversal"]
    layers: int
    kv_heads: int
    heads: int
    head_dim: int
    capacity: int
    vocab_size: int
    batch: int
    rows: int
    shares_cache: bool


@dataclass(frozen=True)
class GpuEngines:
    """The plans for GPUs of one `architecture`, such as "sm89".

    Plans run with the very version of the library that made them, on a driver of at least version
    `cuda`. `kernels` is the path of the cubin that the plans' plugins launch, `plugin` the hash of
    what these compute (`speccompile.plugins.cubins.abi`): the runtime's own must be the same.
    """

    library: Literal["tensorrt", "tensorrt_rtx"]
    library_version: str
    architecture: str
    cuda: str
    kernels: str
    plugin: str
    plans: tuple[PlanInfo, ...]

    @property
    def paths(self) -> frozenset[str]:
        """Of all its files in the artifact."""
        return frozenset({self.kernels, *(plan.plan for plan in self.plans)})


@dataclass(frozen=True)
class Requirements:
    """What a host must have; `packages` maps a distribution's name to a "major.minor" version."""

    architecture: str
    cpu_flags: tuple[str, ...]
    packages: Mapping[str, str]


@dataclass(frozen=True)
class Manifest:
    """`engines`, for the CPU, has a "target" and perhaps a "draft", beside which there may be
    experts, further drafts by names of their own; `requires` is what they need.

    `gpus` are further engines by the name of their folder, none of which has to run on this host.
    `provenance` is any JSON about the build. `files` has every path but those of the two records
    and of the reports.
    """

    schema: int
    name: str
    compiler_version: str
    model: ModelInfo
    engines: Mapping[str, EngineInfo]
    requires: Requirements
    provenance: Mapping[str, object]
    files: Mapping[str, FileEntry]
    gpus: Mapping[str, GpuEngines] = field(default_factory=dict[str, GpuEngines])

    def to_bytes(self) -> bytes:
        """The content of `manifest.json`; raises ValueError for a number that is not finite."""
        return record_bytes(self)

    @property
    def experts(self) -> tuple[str, ...]:
        """The names of the drafts beside "draft", sorted."""
        return tuple(sorted(self.engines.keys() - {"target", "draft"}))

    @property
    def drafts(self) -> tuple[str, ...]:
        """The engines that draft, by name: "draft" first, if there is one, and the experts."""
        return (*(name for name in ("draft",) if name in self.engines), *self.experts)

    @property
    def identity(self) -> str:
        """The sha256 of `manifest.json`, which stands for all that the artifact computes."""
        return sha256(self.to_bytes()).hexdigest()


def parse_manifest(data: bytes, where: str) -> Manifest:
    """Read what `Manifest.to_bytes` wrote.

    Raises ArtifactError, beginning with `where` and naming the field, for anything else.
    """
    return parse_record(Manifest, data, where, schema=SCHEMA_VERSION, check=_check)


def _check(manifest: Manifest) -> None:
    check_files(manifest.files)
    for path in manifest.files:
        require(not is_report(path), f"files[{path!r}] is a report, which is measured")
    require("target" in manifest.engines, "engines['target'] is missing")
    context = manifest.model.context_length
    for name, engine in manifest.engines.items():
        field, role = f"engines[{name!r}]", "target" if name == "target" else "draft"
        require(engine.role == role, f"{field}.role is {engine.role!r}")
        require(engine.graph in manifest.files, f"{field}.graph is no file: {engine.graph!r}")
        # A draft with a cache of its own may end before the target: it stops proposing there.
        fits = engine.capacity >= context or (role == "draft" and not engine.shares_cache)
        require(fits, f"{field}.capacity is below the context of {context}")
        _check_token_ids(field, engine, manifest.files)
        _check_encoder(field, engine, manifest)
    _check_experts(manifest)
    for name, version in manifest.requires.packages.items():
        is_minor = re.fullmatch("[0-9]{1,9}[.][0-9]{1,9}", version) is not None
        require(is_minor, f"requires.packages[{name!r}] must be major.minor, not {version!r}")
    for name, gpu in manifest.gpus.items():
        _check_gpu(f"gpus[{name!r}]", gpu, manifest)


def _check_experts(manifest: Manifest) -> None:
    for name in manifest.experts:
        refusal = expert_refusal(name)
        require(refusal is None, f"the key {name!r} of engines {refusal}")
        require("draft" in manifest.engines, f"engines[{name!r}] is an expert beside no draft")
    sharing = [name for name in manifest.drafts if manifest.engines[name].shares_cache]
    require(len(sharing) < 2, f"engines: {' and '.join(sharing)} share one cache, where one can")


def _check_token_ids(field: str, engine: EngineInfo, files: Mapping[str, FileEntry]) -> None:
    ids = engine.token_ids
    if ids is None:
        return
    # A target that lacks tokens would be another model.
    require(engine.role == "draft", f"{field}.token_ids: only a draft may leave tokens out")
    require(ids in files, f"{field}.token_ids is no file: {ids!r}")
    beside = PurePosixPath(ids).parent == PurePosixPath(engine.graph).parent
    require(beside, f"{field}.token_ids is not beside the graph: {ids!r}")


def _check_encoder(field: str, engine: EngineInfo, manifest: Manifest) -> None:
    graph, starts = engine.encoder, manifest.model.start_token_id is not None
    reads = starts and not engine.shares_cache
    require((graph is not None) == reads, f"{field}.encoder does not fit model.start_token_id")
    if graph is not None:
        require(graph in manifest.files, f"{field}.encoder is no file: {graph!r}")
        require(engine.backend == "onnxruntime", f"{field}.encoder: {engine.backend} runs none")


def _check_gpu(field: str, gpu: GpuEngines, manifest: Manifest) -> None:
    architecture, cuda = gpu.architecture, gpu.cuda
    named = re.fullmatch("sm[0-9]{2,3}", architecture) is not None
    require(named, f"{field}.architecture must be like sm89, not {architecture!r}")
    is_minor = re.fullmatch("[0-9]{1,9}[.][0-9]{1,9}", cuda) is not None
    require(is_minor, f"{field}.cuda must be major.minor, not {cuda!r}")
    require(gpu.kernels in manifest.files, f"{field}.kernels is no file: {gpu.kernels!r}")
    for index, plan in enumerate(gpu.plans):
        known = plan.plan in manifest.files
        require(known, f"{field}.plans[{index}].plan is no file: {plan.plan!r}")
    targets = {plan.capacity for plan in gpu.plans if plan.role == "target"}
    require(bool(targets), f"{field} has no plan of the target")
    for plan in gpu.plans:
        alone = plan.shares_cache and plan.capacity not in targets
        require(not alone, f"{field}: no target has the cache of {plan.plan!r}")
