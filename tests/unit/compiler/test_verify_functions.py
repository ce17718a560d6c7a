import onnx
import onnx_ir as ir
import pytest

from speccompile.compiler.graph import PROJECT_DOMAIN
from speccompile.compiler.lower.passes import LoweringError
from speccompile.compiler.verify_functions import attach, inline
from speccompile.plugins.schema import (
    COMPACT_ROWS,
    RULES,
    TREE_MASK,
    Operator,
    Rule,
    spec_verify,
)
from tests.operator_models import operator_model

EVERY: list[tuple[Operator, Rule | None]] = [
    (TREE_MASK, None),
    (COMPACT_ROWS, None),
    *((spec_verify(rule), rule) for rule in RULES),
]
BODIES = pytest.mark.parametrize(
    ("operator", "rule"), EVERY, ids=[rule or operator.name for operator, rule in EVERY]
)


def called(model: ir.Model) -> set[str]:
    """The functions of ours that anything in `model` calls."""
    nodes = [*model.graph.all_nodes()]
    for function in model.functions.values():
        nodes += function.all_nodes()
    return {node.op_type for node in nodes if node.domain == PROJECT_DOMAIN}


@BODIES
def test_a_body_brings_what_it_calls_and_nothing_else(
    operator: Operator, rule: Rule | None
) -> None:
    model = operator_model(operator, rule)
    assert {function.name for function in model.functions.values()} == called(model)
    onnx.checker.check_model(ir.to_proto(model), full_check=True)


@BODIES
def test_a_body_has_the_arguments_and_attributes_of_its_operator(
    operator: Operator, rule: Rule | None
) -> None:
    function = operator_model(operator, rule).functions[PROJECT_DOMAIN, operator.name, ""]
    assert [value.name for value in function.inputs] == [each.name for each in operator.inputs]
    assert [value.name for value in function.outputs] == [each.name for each in operator.outputs]
    plugin = {"plugin_namespace", "plugin_version"}
    assert set(function.attributes) == {*operator.attributes, *plugin}


def test_attaching_twice_is_attaching_once() -> None:
    model = operator_model(spec_verify("walk"), "walk")
    names = list(model.functions)
    attach(model, spec_verify("walk"), "walk")
    assert list(model.functions) == names


def test_functions_of_two_models_are_their_own() -> None:
    one, other = (operator_model(TREE_MASK, None) for _ in range(2))
    functions = zip(one.functions.values(), other.functions.values(), strict=True)
    assert all(left is not right for left, right in functions)


@pytest.mark.parametrize("operator", [TREE_MASK, COMPACT_ROWS, spec_verify("greedy")])
def test_inlining_leaves_standard_operators_alone(operator: Operator) -> None:
    model = operator_model(operator, "greedy" if operator.name == "SpecVerify" else None)
    inline(model)
    assert not model.functions
    assert {node.domain for node in model.graph.all_nodes()} == {""}
    onnx.checker.check_model(ir.to_proto(model), full_check=True)


@pytest.mark.parametrize("rule", ["walk", "token", "traversal"])
def test_what_draws_tokens_is_not_inlined(rule: Rule) -> None:
    with pytest.raises(LoweringError, match="sums in 64 bits, which OpenVINO does not"):
        inline(operator_model(spec_verify(rule), rule))
