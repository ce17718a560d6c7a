"""TensorRT: the target judges a proposal in the same graph that computes its logits.

``SpecVerify`` takes the logits where they are, and what else its rule asks for as inputs of the
graph; its verdict, ``path``, ``count``, ``next_token`` and ``emitted``, follows ``logits`` among
the outputs. `speccompile.plugins.schema` says what all of these are.
"""

from __future__ import annotations

import onnx_ir as ir

from speccompile.compiler.graph import GraphBuilder, declare
from speccompile.compiler.lower.cached_attention import extent, replace_interface
from speccompile.compiler.lower.passes import LoweringError, Pass
from speccompile.plugins.schema import DOMAIN, NAMESPACE, VERSION, Argument, Rule, spec_verify

__all__ = ["insert_verify"]

_TYPES = {"int64": ir.DataType.INT64, "float32": ir.DataType.FLOAT}


def insert_verify(rule: Rule) -> Pass:
    """The pass for a graph that judges by `rule`."""
    return Pass(
        f"verify_{rule}",
        lambda model: _rewrite(model, rule),
        requires=frozenset({"TreeMask"}),
        ensures=frozenset({"SpecVerify"}),
    )


def _rewrite(model: ir.Model, rule: Rule) -> int:
    graph, operator = model.graph, spec_verify(rule)
    logits = next((value for value in graph.outputs if value.name == "logits"), None)
    inputs = {str(value.name): value for value in graph.inputs}
    if logits is None or logits.dtype is None or "parents" not in inputs:
        raise LoweringError("the graph has no typed logits and parents to judge a proposal by")
    known = {"logits": logits, "tokens": inputs["input_ids"], "parents": inputs["parents"]}
    added: list[ir.Value] = []
    for argument in operator.inputs[len(known) :]:
        added.append(_declare(argument, logits, logits.dtype))
    builder = GraphBuilder()
    verdict = builder.split(
        operator.name,
        "/verify",
        *(known[argument.name] for argument in operator.inputs[: len(known)]),
        *added,
        outputs=len(operator.outputs),
        domain=DOMAIN,
        rule=rule,
        plugin_namespace=NAMESPACE,
        plugin_version=VERSION,
    )
    graph.extend(builder.nodes)
    for value, argument in zip(verdict, operator.outputs, strict=True):
        value.name, value.type = argument.name, ir.TensorType(_TYPES[argument.type])
        value.shape = ir.Shape(argument.shape)
    others = [value for value in graph.outputs if value is not logits]
    graph.outputs[:] = [logits, *verdict, *others]
    replace_interface(model, added, {str(value.name) for value in graph.outputs})
    return 1


def _declare(argument: Argument, logits: ir.Value, dtype: ir.DataType) -> ir.Value:
    """An input for `argument`; a vocabulary, and what is a number, are static."""
    sizes = {"V": extent(logits, 2)}
    shape = [int(each) if each.isdigit() else sizes.get(each, each) for each in argument.shape]
    return declare(argument.name, _TYPES.get(argument.type, dtype), shape)
