"""The TensorRT plugins of `SpecVerify` and `TreeMask`.

One class, an IPluginV3, answers what TensorRT asks, from the operator's schema; what differs,
`tensorrt_nodes` has. `enqueue` launches kernels on the stream that it is given and does nothing
else: it neither allocates nor waits, so that a CUDA graph can capture it, and no Python runs when
the graph is replayed.

TensorRT comes in as the module ``tensorrt`` or ``tensorrt_rtx``; neither is imported here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import wraps
from types import ModuleType, new_class
from typing import Concatenate, ParamSpec, Self, TypeVar, get_args

import numpy as np
from numpy.typing import NDArray

from speccompile.plugins.driver import Kernels
from speccompile.plugins.launches import LogitsType
from speccompile.plugins.schema import NAMESPACE, VERSION
from speccompile.plugins.tensorrt_nodes import (
    ATTRIBUTES,
    Node,
    by_dimension,
    decode,
    encode,
    make_node,
)
from speccompile.plugins.tensorrt_types import Expressions, Field, Range, Registry, Tensor

__all__ = ["Kernels", "Registration", "register"]

_TYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    "INT64": "int64",
    "BOOL": "bool",
}
"""TensorRT's names of types, and the schema's."""
_MEMBERS = {ours: theirs for theirs, ours in _TYPES.items()}
_VERSION_FIELD = "version"


@dataclass(frozen=True)
class Registration:
    """Plugins that TensorRT finds until `close`.

    `calls` counts what it has asked of them so far, by ``OPERATOR.CALLBACK``. `refusals` says which
    nodes they did not take, and why: TensorRT says only that there was no plugin.
    """

    calls: Counter[str]
    refusals: list[str]
    _registry: Registry
    _creators: list[object] = field(default_factory=list[object])

    def add(self, operator: str, creator: object) -> None:
        if not self._registry.register_creator(creator, NAMESPACE):
            raise RuntimeError(f"a TensorRT plugin {NAMESPACE}::{operator} is registered already")
        self._creators.append(creator)

    def close(self) -> None:
        while self._creators:
            self._registry.deregister_creator(self._creators.pop())


def register(trt: ModuleType, kernels: Kernels) -> Registration:
    """Make the operators' plugins known to TensorRT, to build plans with and to run them.

    No device is needed before a plan is about to run. Raises RuntimeError if the plugins are
    registered already: a process has one registry.
    """
    registration = Registration(Counter(), [], trt.get_plugin_registry())
    shared = _Shared(trt, kernels, registration)
    creator = new_class("SpeccompileCreator", (_Creator, trt.IPluginCreatorV3One))
    try:
        for operator in ATTRIBUTES:
            registration.add(operator, creator(shared, operator))
    except RuntimeError:
        registration.close()
        raise
    return registration


@dataclass(frozen=True)
class _Shared:
    """What the plugins of one registration have in common."""

    trt: ModuleType
    kernels: Kernels
    registration: Registration

    def interfaces(self) -> tuple[type[object], ...]:
        trt = self.trt
        one = trt.IPluginV3OneCore, trt.IPluginV3OneBuild, trt.IPluginV3OneRuntime
        return (trt.IPluginV3, *one)

    def plugin(self, name: str, node: Node) -> _Plugin:
        kind = new_class("SpeccompilePlugin", (_Plugin, *self.interfaces()))
        plugin: _Plugin = kind(self, name, node)
        return plugin

    def refuse(self, name: str, operator: str, reason: str) -> None:
        self.registration.refusals.append(f"node {name!r} ({operator}): {reason}")

    def fields(self, arrays: Mapping[str, NDArray[np.generic]]) -> object:
        """A PluginFieldCollection; it points to the `arrays`, which have to stay."""
        kinds, field = self.trt.PluginFieldType, self.trt.PluginField
        return self.trt.PluginFieldCollection(
            [
                field(name, array, kinds.CHAR if array.dtype == np.int8 else kinds.INT32)
                for name, array in arrays.items()
            ]
        )


class _Creator:
    """IPluginCreatorV3One of one operator: makes its plugins of ONNX nodes, and of plans."""

    def __init__(self, shared: _Shared, operator: str) -> None:
        shared.trt.IPluginCreatorV3One.__init__(self)
        self.name = operator
        self.plugin_namespace = NAMESPACE
        self.plugin_version = VERSION
        self._arrays = {name: encode(kind()) for name, kind in ATTRIBUTES[operator].items()}
        self.field_names = shared.fields(self._arrays)
        self._shared = shared

    def create_plugin(self, name: str, fields: Iterable[Field], phase: object) -> _Plugin:
        del phase
        registration = self._shared.registration
        registration.calls[f"{self.name}.create_plugin"] += 1
        attributes = {field.name: decode(field.data) for field in fields}
        version = attributes.pop(_VERSION_FIELD, VERSION)  # a plan has it, an ONNX node does not
        try:
            if version != VERSION:
                raise ValueError(f"the plan's {self.name} is of version {version}, not {VERSION}")
            return self._shared.plugin(name, make_node(self.name, attributes))
        except ValueError as error:
            self._shared.refuse(name, self.name, str(error))
            raise


_P = ParamSpec("_P")
_R = TypeVar("_R")


def _counted(
    callback: Callable[Concatenate[_Plugin, _P], _R],
) -> Callable[Concatenate[_Plugin, _P], _R]:
    @wraps(callback)
    def count_and_call(plugin: _Plugin, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        plugin.shared.registration.calls[f"{plugin.plugin_name}.{callback.__name__}"] += 1
        return callback(plugin, *args, **kwargs)

    return count_and_call


class _Plugin:
    """IPluginV3 of one node, with all of its interfaces."""

    def __init__(self, shared: _Shared, name: str, node: Node) -> None:
        for interface in shared.interfaces():
            interface.__init__(self)
        self.shared = shared
        self._name = name
        self._node = node
        self._arrays = {
            name: encode(value) for name, value in {**asdict(node), _VERSION_FIELD: VERSION}.items()
        }
        self.plugin_name = node.operator.name
        self.plugin_namespace = NAMESPACE
        self.plugin_version = VERSION
        self.num_outputs = len(node.operator.outputs)

    def get_capability_interface(self, kind: object) -> Self:
        del kind
        return self

    def clone(self) -> _Plugin:
        return self.shared.plugin(self._name, self._node)

    # while a plan is built

    @_counted
    def get_output_data_types(self, input_types: Sequence[object]) -> list[object]:
        del input_types
        types = self.shared.trt.DataType
        return [getattr(types, _MEMBERS[output.type]) for output in self._node.operator.outputs]

    @_counted
    def get_output_shapes(
        self,
        inputs: Sequence[Sequence[object]],
        shape_inputs: Sequence[object],
        expressions: Expressions,
    ) -> list[object]:
        del shape_inputs
        operator = self._node.operator
        known = by_dimension(operator.inputs, inputs)
        known |= {name: expressions.constant(size) for name, size in self._node.sizes.items()}
        shapes: list[object] = []
        for output in operator.outputs:
            shape = self.shared.trt.DimsExprs(len(output.shape))
            for index, name in enumerate(output.shape):
                shape[index] = known[name] if name in known else expressions.constant(int(name))
            shapes.append(shape)
        return shapes

    @_counted
    def supports_format_combination(
        self, position: int, tensors: Sequence[Range], num_inputs: int
    ) -> bool:
        """Dense tensors of the schema's types; all logits are of one type, the first input's."""
        operator = self._node.operator
        if num_inputs != len(operator.inputs):
            names = ", ".join(argument.name for argument in operator.inputs)
            self._refuse(f"it has {num_inputs} inputs, and not {names}")
            return False
        argument = (*operator.inputs, *operator.outputs)[position]
        tensor = tensors[position].desc
        offered = _TYPES.get(tensor.type.name, tensor.type.name.lower())
        if argument.type == "logits":
            first = tensors[0].desc.type.name
            needed = get_args(LogitsType) if position == 0 else (_TYPES.get(first),)
        else:
            needed = (argument.type,)
        if offered not in needed:
            self._refuse(f"{argument.name} is {offered}, and not {' or '.join(map(str, needed))}")
        return offered in needed and tensor.format.name == "LINEAR"

    @_counted
    def configure_plugin(self, inputs: Sequence[Range], outputs: Sequence[Range]) -> None:
        """Nothing depends on the ranges."""

    @_counted
    def get_workspace_size(self, inputs: Sequence[Range], outputs: Sequence[Range]) -> int:
        del outputs
        largest = [tensor.max for tensor in inputs]
        return self._node.workspace(by_dimension(self._node.operator.inputs, largest))

    @_counted
    def get_valid_tactics(self) -> list[int]:
        return []  # one way only

    def _refuse(self, reason: str) -> None:
        self.shared.refuse(self._name, self.plugin_name, reason)

    # while a plan is kept and run

    @_counted
    def get_fields_to_serialize(self) -> object:
        return self.shared.fields(self._arrays)

    @_counted
    def attach_to_context(self, context: object) -> _Plugin:
        del context
        self.shared.kernels.load()
        return self.clone()

    @_counted
    def set_tactic(self, tactic: int) -> None:
        """There is one way only."""

    @_counted
    def on_shape_change(self, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """`enqueue` is told the shapes again."""

    @_counted
    def enqueue(
        self,
        input_desc: Sequence[Tensor],
        output_desc: Sequence[Tensor],
        inputs: Sequence[int],
        outputs: Sequence[int],
        workspace: int,
        stream: int,
    ) -> None:
        del output_desc
        operator = self._node.operator
        sizes = by_dimension(operator.inputs, [tensor.dims for tensor in input_desc])
        names = [argument.name for argument in (*operator.inputs, *operator.outputs)]
        addresses = dict(zip(names, [*inputs, *outputs], strict=True))
        first_type = _TYPES[input_desc[0].type.name]
        for launch in self._node.launches(sizes, first_type, addresses, workspace):
            self.shared.kernels.launch(launch, stream)
