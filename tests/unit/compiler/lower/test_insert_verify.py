from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from speccompile.compiler.lower.backends import plan_lowering
from speccompile.compiler.lower.insert_verify import insert_verify
from speccompile.compiler.lower.passes import LoweringError, run_passes
from speccompile.compiler.tensorrt.rehearsal import PlanRun
from speccompile.plugins.schema import NAMESPACE, RULES, VERSION, Rule
from speccompile.plugins.spec_verify import Tree, spec_verify
from tests.unit.compiler.lower.graphs import CAPACITY, STORAGES, TOKENS, contract, write

CONTROLS = ["input_ids", "parents", "lengths", "given"]
SAMPLED = [*CONTROLS, "uniforms", "sampling"]
INPUTS = {
    "greedy": CONTROLS,
    "walk": SAMPLED,
    "token": [*SAMPLED, "draft_logits"],
    "traversal": [*SAMPLED, "draft_logits"],
}
CACHES = ["key_cache.0", "value_cache.0", "key_cache.1", "value_cache.1"]


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_asks_for_its_inputs(tmp_path: Path, rule: Rule) -> None:
    model = _lowered(tmp_path, rule)
    graph = model.graph
    assert [value.name for value in graph.inputs] == [*INPUTS[rule], *CACHES]
    verdict = ["path", "count", "next_token", "emitted"]
    new = [f"new_{name}" for name in CACHES]
    assert [value.name for value in graph.outputs] == ["logits", *verdict, *new]
    node = graph[-1]
    assert node.op_type == "SpecVerify"
    attributes = {key: value.as_string() for key, value in node.attributes.items()}
    assert attributes == {"rule": rule, "plugin_namespace": NAMESPACE, "plugin_version": VERSION}
    shapes = {str(value.name): _signature(value) for value in (*graph.inputs, *graph.outputs)}
    expected = {
        "lengths": "INT64[B]",
        "given": "INT64[B]",
        "uniforms": "INT64[B,N,2]",
        "sampling": "FLOAT[B,4]",
        "draft_logits": "FLOAT16[B,N,40]",
        "logits": "FLOAT16[B,N,40]",
        "path": "INT64[B,N]",
        "count": "INT64[B]",
        "next_token": "INT64[B]",
        "emitted": "INT64[B,N]",
        "new_key_cache.1": f"FLOAT16[B,2,{CAPACITY},16]",
    }
    assert {name: shapes[name] for name in expected if name in shapes} == {
        name: shape for name, shape in expected.items() if name in {*INPUTS[rule], *shapes}
    }


def test_the_verdict_is_that_of_the_logits(tmp_path: Path) -> None:
    plan = PlanRun(_lowered(tmp_path, "walk"), tmp_path, "walk", batch=2)
    tokens = np.array([TOKENS[:8], TOKENS[8:16]])
    parents = np.array([[-1, 0, 0, 1, 1, 2, 4, 5], [-1, 0, 1, 2, 3, -1, -1, -1]])
    # The tree's first branch says what the target does: some of it is accepted.
    first = plan.step(tokens[:, :1])["next_token"]
    plan.lengths[:] = 0
    tokens[:, 1] = first
    given = np.array([1, 1])
    outputs = plan.step(tokens, parents, given=given)
    for b in range(2):
        tree = Tree(tokens[b], parents[b])
        uniforms = np.zeros((8, 2), np.int64)
        logits = outputs["logits"][b].astype(np.float32)
        verdict = spec_verify("walk", logits, tree, uniforms)
        assert len(verdict.path) > 1
        count = int(outputs["count"][b])
        assert outputs["path"][b, :count].tolist() == verdict.path
        assert outputs["next_token"][b] == verdict.next_token
        assert outputs["emitted"][b, :count].tolist() == verdict.emitted(tree)


def test_a_graph_without_a_tree_is_refused(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["fp32"])
    with pytest.raises(LoweringError, match=r"\Alowering pass verify_walk needs TreeMask"):
        run_passes(contract(tmp_path), [insert_verify("walk")])


def _lowered(folder: Path, rule: Rule) -> ir.Model:
    write(folder, STORAGES["fp16"])
    model = contract(folder)
    run_passes(model, plan_lowering("tensorrt", rule, CAPACITY))
    return model


def _signature(value: ir.Value) -> str:
    assert value.dtype is not None
    assert value.shape is not None
    return f"{value.dtype.name}[{','.join(str(size) for size in value.shape)}]"
