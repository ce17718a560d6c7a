"""Function bodies in standard operators, for the operators of the domain ``speccompile``.

A node of that domain is an operator to TensorRT, which has a plugin for it, and a call of a
model-local function to everything else. The bodies are text in ONNX's own notation, beside the
plugin's other implementations (``plugins/bodies``): a function a file, some of which call others.
ONNX Runtime takes them as they are and computes what the oracle does, bit for bit. OpenVINO needs
them in place of their calls (`inline`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files

import onnx
import onnx.parser
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from speccompile.compiler.graph import PROJECT_DOMAIN
from speccompile.compiler.lower.passes import LoweringError
from speccompile.plugins.schema import Operator, Rule

__all__ = ["attach", "inline"]

_SUMMED = ("Mass", "Law")
"""Functions that sum in 64 bits."""


def attach(model: ir.Model, operator: Operator, rule: Rule | None = None) -> None:
    """Give `model` the body of `operator`, and what it calls; `SpecVerify` has one for each `rule`.

    A model has one rule. A call has the operator's attributes, and those that a TensorRT plugin is
    found by.
    """
    for function in _with_callees(_file(operator.name) + (f"_{rule}" if rule else "")):
        model.functions[function.identifier()] = function
    model.opset_imports[PROJECT_DOMAIN] = 1


def inline(model: ir.Model) -> None:
    """Put every body in the place of its calls.

    Raises `LoweringError` for a rule that draws tokens: OpenVINO's CPU plugin computes int64 and
    float64 in 32 bits, and would draw others.
    """
    names = {function.name for function in model.functions.values()}
    if summed := names.intersection(_SUMMED):
        raise LoweringError(
            f"the function {min(summed)} sums in 64 bits, which OpenVINO does not: "
            "give it the rule greedy, or ONNX Runtime this one"
        )
    InlinePass()(model)


def _with_callees(file: str) -> Iterator[ir.Function]:
    """Made anew each time: a function belongs to one model."""
    waiting, known = [file], {file}
    while waiting:
        function = ir.serde.deserialize_function(_parsed(waiting.pop()))
        yield function
        for node in function.all_nodes():
            callee = _file(node.op_type)
            if node.domain == PROJECT_DOMAIN and callee not in known:
                known.add(callee)
                waiting.append(callee)


@cache
def _parsed(file: str) -> onnx.FunctionProto:
    text = (files("speccompile.plugins") / "bodies" / f"{file}.onnxtxt").read_text("utf-8")
    return onnx.parser.parse_function(text)


def _file(name: str) -> str:
    """``TreeMask`` is in ``tree_mask``."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
