"""A TensorRT plan of a lowered graph, and what can be said of it without a GPU.

The library may end the process and keeps its memory: call this in a stage's own process.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import onnx

from speccompile.compiler.tensorrt.library import Library, Message
from speccompile.compiler.tensorrt.network import Network, NetworkFacts, NetworkTensor, read_network
from speccompile.compiler.tensorrt.refusals import (
    check_graph,
    check_plugins,
    ignored_plugin,
    refusal,
)
from speccompile.plugins import schema
from speccompile.plugins.tensorrt_plugin import Kernels, Registration, register
from speccompile.runtime.errors import CompatibilityError, EngineError, SpeccompileError
from speccompile.runtime.gpus import find_gpus

__all__ = [
    "FLAGS",
    "PlanReport",
    "PlanSpec",
    "Profile",
    "Range",
    "build_plan",
    "choose_architecture",
]

Range = tuple[int, int, int]
"""The least, the usual and the most."""

FLAGS: Mapping[str, str] = {
    "STRICT_NANS": "0 * x stays NaN: verification tells invalid logits by it",
    "REQUIRE_USER_ALLOCATION": "nothing is allocated in a run: a CUDA graph can capture it",
}
"""Builder flags that every plan has, where the library knows them, and why. TF32 is off: what is
float32 in a graph has to be."""


@dataclass(frozen=True)
class Profile:
    """Shapes that a plan is optimized for: sequences B, and query rows N of each."""

    batch: Range
    rows: Range


@dataclass(frozen=True)
class PlanSpec:
    """`architecture` is such as "sm89", or "current", that of the GPU at hand. `flags` are names of
    builder flags beside `FLAGS`."""

    graph: Path
    architecture: str
    profiles: tuple[Profile, ...]
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class PlanReport:
    """`flags` come with their reasons; `plugin_calls` count what TensorRT asked of our plugins;
    `seconds` is the time of the build alone."""

    library: str
    version: str
    architecture: str
    bytes: int
    seconds: float
    network: NetworkFacts
    profiles: tuple[Profile, ...]
    flags: Mapping[str, str]
    plugin_calls: Mapping[str, int]


def build_plan(spec: PlanSpec, library: Library, kernels: Kernels, plan: Path) -> PlanReport:
    """Write the plan of `spec` to `plan`.

    The size of a plan is the same every time, its bytes are not: TensorRT-RTX lists tensors, and
    numbers dimensions that vary, in the order in which it happens to meet them.

    `kernels` are needed only where a library runs plugins while it builds. Raises
    CompatibilityError where the library cannot build for the architecture here, EngineError where
    it refuses the graph, SpeccompileError where `spec` is wrong in itself.
    """
    architecture = choose_architecture(spec.architecture, library)
    model = onnx.load(spec.graph, load_external_data=False)
    check_graph(spec.graph, model)
    trt = library.module
    plugins = register(trt, kernels)
    try:
        builder = trt.Builder(library.log)
        network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
        _parse(spec, library, model, network, plugins)
        facts = read_network(network)
        check_plugins(spec.graph, model, facts)
        config = builder.create_builder_config()
        flags = _set_flags(config, spec, library)
        if not library.needs_device:
            config.num_compute_capabilities = 1
            capability = trt.ComputeCapability.__members__[architecture.upper()]
            config.set_compute_capability(capability, 0)
        for profile in _profiles(spec, facts):
            shapes = builder.create_optimization_profile()
            for tensor in facts.inputs:
                shapes.set_shape(tensor.name, *_shapes(spec, profile, tensor))
            config.add_optimization_profile(shapes)
        start = time.perf_counter()
        with library.log.collect() as messages:
            built = builder.build_serialized_network(network, config)
        seconds = time.perf_counter() - start
        if built is None:
            raise _build_refusal(spec, library, model, messages, plugins)
        size = plan.write_bytes(built)
    finally:
        plugins.close()
    return PlanReport(
        library=library.name,
        version=library.version,
        architecture=architecture,
        bytes=size,
        seconds=round(seconds, 3),
        network=facts,
        profiles=spec.profiles,
        flags=flags,
        plugin_calls=dict(sorted(plugins.calls.items())),
    )


def choose_architecture(wanted: str, library: Library) -> str:
    """What to build for, "current" resolved. Raises CompatibilityError where the library cannot."""
    if wanted == "current" or library.needs_device:
        found = find_gpus()
        if not found.gpus and library.needs_device:
            raise CompatibilityError(
                f"{library.title} builds on the GPU that a plan is for, and here is none "
                f"({found.reason}); build on a host that has it, or, for GPUs that TensorRT-RTX "
                f"knows, without one: --engine tensorrt-rtx:sm89"
            )
        if not found.gpus:
            raise CompatibilityError(
                f"there is no GPU here to build for ({found.reason}); name the architecture of "
                f"another: {', '.join(library.architectures)}"
            )
        present = found.gpus[0].architecture
        wanted = present if wanted == "current" else wanted
        if library.needs_device and wanted != present:
            raise CompatibilityError(
                f"{library.title} builds for the GPU at hand, {present}, not for {wanted}; build "
                f"on a host with such a GPU"
            )
    if not library.needs_device and wanted not in library.architectures:
        raise CompatibilityError(
            f"{library.title} does not build for {wanted}, only for "
            f"{', '.join(library.architectures)}; for others, such as sm90 and sm100, build on a "
            f"host with such a GPU, with TensorRT: pip install 'speccompile[cuda]'"
        )
    return wanted


class _Parsed(Protocol):
    """ParserError."""

    def node(self) -> int: ...
    def node_operator(self) -> str: ...
    def desc(self) -> str: ...


def _parse(
    spec: PlanSpec,
    library: Library,
    model: onnx.ModelProto,
    network: Network,
    plugins: Registration,
) -> None:
    parser = library.module.OnnxParser(network, library.log)
    if parser.parse_from_file(str(spec.graph)):
        return
    if plugins.refusals:
        raise EngineError(f"{spec.graph}: {plugins.refusals[0]}")
    errors: list[_Parsed] = [parser.get_error(index) for index in range(parser.num_errors)]
    nodes = list(model.graph.node)
    node = nodes[errors[0].node()] if errors and 0 <= errors[0].node() < len(nodes) else None
    if node is not None and node.domain == schema.DOMAIN:
        raise ignored_plugin(spec.graph, node)
    texts = [f"{error.node_operator()}: {error.desc()}" for error in errors]
    raise refusal(spec.graph, model, node, library.title, texts)


def _build_refusal(
    spec: PlanSpec,
    library: Library,
    model: onnx.ModelProto,
    messages: Sequence[Message],
    plugins: Registration,
) -> EngineError:
    texts = [message.text for message in messages if message.is_error]
    if plugins.refusals and any("plugin" in text for text in texts):
        return EngineError(f"{spec.graph}: {plugins.refusals[0]}")
    return refusal(spec.graph, model, None, library.title, texts)


def _set_flags(config: _Config, spec: PlanSpec, library: Library) -> Mapping[str, str]:
    """The names of the flags that are set, and why."""
    known = library.module.BuilderFlag.__members__
    for name in spec.flags:
        if name not in known:
            raise SpeccompileError(
                f"{library.title} has no builder flag {name}; it has {', '.join(known)}"
            )
    chosen = {name: why for name, why in FLAGS.items() if name in known}
    chosen |= dict.fromkeys(spec.flags, "asked for")
    for name in chosen:
        config.set_flag(known[name])
    config.clear_flag(known["TF32"])
    return chosen


class _Config(Protocol):
    """IBuilderConfig."""

    def set_flag(self, flag: object) -> None: ...
    def clear_flag(self, flag: object) -> None: ...


def _profiles(spec: PlanSpec, facts: NetworkFacts) -> tuple[Profile, ...]:
    """Those of `spec`; none for a graph whose shapes are all fixed."""
    if not any(_varies(size) for tensor in facts.inputs for size in tensor.shape):
        return ()
    if not spec.profiles:
        raise SpeccompileError(f"{spec.graph}: its shapes vary; name a profile for them")
    for profile in spec.profiles:
        for name, (least, usual, most) in (("batch", profile.batch), ("rows", profile.rows)):
            if not 1 <= least <= usual <= most:
                raise SpeccompileError(
                    f"a profile's {name} are least, usual and most, of at least 1, "
                    f"not {least}, {usual}, {most}"
                )
    return spec.profiles


def _shapes(spec: PlanSpec, profile: Profile, tensor: NetworkTensor) -> tuple[tuple[int, ...], ...]:
    """Of an input: the least, the usual and the most."""
    ranges: Mapping[int | str, Range] = {"B": profile.batch, "N": profile.rows}
    columns: list[Range] = []
    for size in tensor.shape:
        if _varies(size) and size not in ranges:
            raise SpeccompileError(
                f"{spec.graph}: input {tensor.name} varies in {size}; only B (sequences) and N "
                f"(rows) can vary in a plan"
            )
        columns.append(ranges[size] if isinstance(size, str) else (size, size, size))
    return tuple(zip(*columns, strict=True))


def _varies(size: int | str) -> bool:
    return isinstance(size, str) or size < 0
