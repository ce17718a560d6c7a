"""Models of one node: an operator of ours, called with the body that the compiler gives it."""

from __future__ import annotations

import onnx_ir as ir

from speccompile.compiler.graph import GraphBuilder, declare
from speccompile.compiler.verify_functions import attach
from speccompile.plugins.schema import DOMAIN, NAMESPACE, VERSION, Argument, Operator, Rule

__all__ = ["operator_model"]


def operator_model(
    operator: Operator,
    rule: Rule | None = None,
    *,
    floats: ir.DataType = ir.DataType.FLOAT,
    capacity: int = 40,
    window: int = 0,
) -> ir.Model:
    """Inputs and outputs are the operator's arguments; `floats` is the type of logits or caches."""

    def declared(argument: Argument) -> ir.Value:
        shape = [int(size) if size.isdigit() else size for size in argument.shape]
        return declare(argument.name, types[argument.type], shape)

    types = {
        "bool": ir.DataType.BOOL,
        "int64": ir.DataType.INT64,
        "float32": ir.DataType.FLOAT,
        "logits": floats,
        "cache": floats,
    }
    attributes = {"capacity": capacity, "window": window, "rule": rule or ""}
    inputs = [declared(argument) for argument in operator.inputs]
    builder = GraphBuilder()
    outputs = builder.split(
        operator.name,
        "/node",
        *inputs,
        outputs=len(operator.outputs),
        domain=DOMAIN,
        plugin_namespace=NAMESPACE,
        plugin_version=VERSION,
        **{name: attributes[name] for name in operator.attributes},
    )
    for value, argument in zip(outputs, operator.outputs, strict=True):
        described = declared(argument)
        value.name, value.type, value.shape = argument.name, described.type, described.shape
    model = builder.model(operator.name, inputs, outputs)
    attach(model, operator, rule)
    return model
