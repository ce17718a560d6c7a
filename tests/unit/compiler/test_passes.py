from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest

from speccompile.compiler.graph import GraphBuilder, declare
from speccompile.compiler.lower.passes import LoweringError, Pass, run_passes


def _renaming(old: str, new: str) -> Callable[[ir.Model], int]:
    """Replace every `old` operator by `new`, leaving the old nodes to be cleaned up."""

    def run(model: ir.Model) -> int:
        found = [node for node in model.graph if node.op_type == old]
        for node in found:
            builder = GraphBuilder()
            value = builder.op(new, f"{node.name}/new", *node.inputs)
            builder.splice(model.graph, node)
            node.outputs[0].replace_all_uses_with(value, replace_graph_outputs=True)
        return len(found)

    return run


NOTHING = Pass("nothing", lambda model: 0)
RELU_TO_EXP = Pass(
    "relu_to_exp",
    _renaming("Relu", "Exp"),
    requires=frozenset({"Relu"}),
    ensures=frozenset({"Exp"}),
    removes=frozenset({"Relu"}),
)


@pytest.fixture
def model() -> ir.Model:
    """``Relu(Relu(x) + 1)``."""
    builder, rows = GraphBuilder(), declare("x", ir.DataType.FLOAT, ("N",))
    one = builder.constant("one", np.ones(1, np.float32))
    total = builder.op("Add", "/add", builder.op("Relu", "/first", rows), one)
    return builder.model("test", [rows], [builder.op("Relu", "/second", total)])


def test_counts_rewrites_and_removes_what_they_leave(model: ir.Model) -> None:
    assert run_passes(model, [NOTHING, RELU_TO_EXP]) == {"nothing": 0, "relu_to_exp": 2}
    assert [node.op_type for node in model.graph] == ["Exp", "Add", "Exp"]


def test_the_graph_after_each_pass_can_be_seen(model: ir.Model) -> None:
    seen: list[tuple[str, list[str]]] = []

    def after(name: str, graph: ir.Model) -> None:
        seen.append((name, [node.op_type for node in graph.graph]))

    run_passes(model, [NOTHING, RELU_TO_EXP], after=after)
    assert seen == [("nothing", ["Relu", "Add", "Relu"]), ("relu_to_exp", ["Exp", "Add", "Exp"])]


def test_unused_initializers_go_too(model: ir.Model) -> None:
    def skip_the_sum(model: ir.Model) -> int:
        (add,) = (node for node in model.graph if node.op_type == "Add")
        (rows, _) = add.inputs
        assert rows is not None
        add.outputs[0].replace_all_uses_with(rows)
        return 1

    run_passes(model, [Pass("skip_the_sum", skip_the_sum, removes=frozenset({"Add"}))])
    assert not model.graph.initializers


def test_a_missing_requirement_names_the_passes_before(model: ir.Model) -> None:
    with pytest.raises(LoweringError) as caught:
        run_passes(model, [NOTHING, RELU_TO_EXP, RELU_TO_EXP])
    assert str(caught.value) == (
        "lowering pass relu_to_exp needs Relu, which the graph lacks "
        "(passes before it: nothing, relu_to_exp)"
    )


def test_an_operator_that_was_promised_must_be_there(model: ir.Model) -> None:
    broken = Pass("broken", lambda model: 0, ensures=frozenset({"Tanh", "Exp"}))
    with pytest.raises(LoweringError) as caught:
        run_passes(model, [broken])
    assert str(caught.value) == (
        "lowering pass broken should have produced Exp, Tanh (passes before it: none)"
    )


def test_an_operator_that_was_to_go_must_be_gone(model: ir.Model) -> None:
    broken = Pass("broken", lambda model: 0, removes=frozenset({"Relu"}))
    with pytest.raises(LoweringError, match=r"pass broken left Relu behind \(.*: nothing\)"):
        run_passes(model, [NOTHING, broken])
