"""What TensorRT made of a graph, read from the network: plans cannot be read without a GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Protocol

__all__ = ["Network", "NetworkFacts", "NetworkTensor", "read_network"]

_TYPES = {"FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16"}
"""Names that differ from numpy's."""


class Named(Protocol):
    """A member of an enumeration."""

    @property
    def name(self) -> str: ...


class Tensor(Protocol):
    """ITensor."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> Named: ...
    @property
    def shape(self) -> Sequence[int]: ...

    def get_dimension_name(self, index: int) -> str | None: ...


class Layer(Protocol):
    """ILayer."""

    @property
    def name(self) -> str: ...
    @property
    def type(self) -> Named: ...

    def get_input(self, index: int) -> Tensor: ...
    def get_output(self, index: int) -> Tensor: ...


class Network(Protocol):
    """INetworkDefinition."""

    @property
    def num_inputs(self) -> int: ...
    @property
    def num_outputs(self) -> int: ...
    @property
    def num_layers(self) -> int: ...

    def get_input(self, index: int) -> Tensor: ...
    def get_output(self, index: int) -> Tensor: ...
    def get_layer(self, index: int) -> Layer: ...


@dataclass(frozen=True)
class NetworkTensor:
    """An input or output. A dimension that varies has the name that the graph gives it (inputs), or
    -1 (outputs, for which TensorRT keeps none)."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class NetworkFacts:
    """`layers` counts types; `plugins` names the layers that a plugin computes; `caches` says which
    input each output is written into, in place."""

    inputs: tuple[NetworkTensor, ...]
    outputs: tuple[NetworkTensor, ...]
    layers: Mapping[str, int]
    plugins: tuple[str, ...]
    caches: Mapping[str, str]
    int8_weight_bytes: int


def read_network(network: Network) -> NetworkFacts:
    layers = [network.get_layer(index) for index in range(network.num_layers)]
    updates = [layer for layer in layers if layer.type.name == "KV_CACHE_UPDATE"]
    constants = [layer.get_output(0) for layer in layers if layer.type.name == "CONSTANT"]
    inputs = [network.get_input(index) for index in range(network.num_inputs)]
    outputs = [network.get_output(index) for index in range(network.num_outputs)]
    return NetworkFacts(
        inputs=tuple(map(_describe, inputs)),
        outputs=tuple(map(_describe, outputs)),
        layers=dict(sorted(Counter(layer.type.name for layer in layers).items())),
        plugins=tuple(layer.name for layer in layers if layer.type.name == "PLUGIN_V3"),
        caches={layer.get_output(0).name: layer.get_input(0).name for layer in updates},
        int8_weight_bytes=sum(prod(t.shape) for t in constants if t.dtype.name == "INT8"),
    )


def _describe(tensor: Tensor) -> NetworkTensor:
    shape = tuple(
        tensor.get_dimension_name(index) or -1 if size < 0 else size
        for index, size in enumerate(tensor.shape)
    )
    name = tensor.dtype.name
    return NetworkTensor(tensor.name, _TYPES.get(name, name.lower()), shape)
