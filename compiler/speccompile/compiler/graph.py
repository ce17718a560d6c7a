"""A thin builder of ONNX graphs: nodes carry path names, constants are shared by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

__all__ = ["OPSET", "PROJECT_DOMAIN", "GraphBuilder", "declare"]

OPSET = 24
PROJECT_DOMAIN = "speccompile"

Dimension = int | str
Attribute = int | float | str | Sequence[int]


def declare(name: str, dtype: ir.DataType, shape: Iterable[Dimension]) -> ir.Value:
    """A graph input or a typed output."""
    return ir.Value(name=name, shape=ir.Shape(tuple(shape)), type=ir.TensorType(dtype))


@dataclass
class GraphBuilder:
    """Collects nodes and initializers in the order in which they are asked for."""

    nodes: list[ir.Node] = field(default_factory=list[ir.Node])
    initializers: dict[str, ir.Value] = field(default_factory=dict[str, ir.Value])

    def op(
        self,
        kind: str,
        name: str,
        *inputs: ir.Value | None,
        domain: str = "",
        **attributes: Attribute,
    ) -> ir.Value:
        """Add a node with one output; both are called `name`, for example ``/model/norm``."""
        return self.split(kind, name, *inputs, outputs=1, domain=domain, **attributes)[0]

    def split(
        self,
        kind: str,
        name: str,
        *inputs: ir.Value | None,
        outputs: int,
        domain: str = "",
        **attributes: Attribute,
    ) -> Sequence[ir.Value]:
        """Add a node with several outputs, called ``name``, ``name.1``, ``name.2`` and so on."""
        node = ir.Node(
            domain,
            kind,
            inputs,
            ir.convenience.convert_attributes(attributes),
            num_outputs=outputs,
            name=name,
        )
        for index, output in enumerate(node.outputs):
            output.name = f"{name}.{index}" if index else name
        self.nodes.append(node)
        return node.outputs

    def weight(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        """An initializer; asking twice for a name gives one value, so tied weights stay one."""
        if name not in self.initializers:
            self.initializers[name] = ir.Value(
                name=name,
                shape=ir.Shape(tensor.shape.numpy()),
                type=ir.TensorType(tensor.dtype),
                const_value=tensor,
            )
        return self.initializers[name]

    def constant(self, name: str, array: NDArray[np.generic]) -> ir.Value:
        """A small initializer given by value."""
        return self.weight(name, ir.tensor(np.ascontiguousarray(array), name=name))

    def splice(self, graph: ir.Graph, before: ir.Node) -> None:
        """Put what was built into an existing `graph`, ahead of `before`."""
        for value in self.initializers.values():
            if value.graph is None:
                graph.register_initializer(value)
        graph.insert_before(before, self.nodes)

    def model(self, name: str, inputs: Sequence[ir.Value], outputs: Sequence[ir.Value]) -> ir.Model:
        """The finished model."""
        graph = ir.Graph(
            inputs,
            outputs,
            nodes=self.nodes,
            initializers=list(self.initializers.values()),
            opset_imports={"": OPSET, PROJECT_DOMAIN: 1},
            name=name,
        )
        return ir.Model(graph, ir_version=11, producer_name="speccompile")
