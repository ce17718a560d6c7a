"""The function bodies of our operators in the engines that run them, against the oracle.

Equality is of whole verdicts, tokens drawn at random included: more than 10,000 trees a rule.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import openvino as ov
import pytest
from numpy.typing import NDArray
from onnx_ir.passes.common import InlinePass

from speccompile.compiler.verify_functions import inline
from speccompile.plugins.schema import (
    COMPACT_ROWS,
    INVALID,
    RULES,
    TREE_MASK,
    Rule,
    spec_verify,
)
from speccompile.plugins.tree import compact_rows, tree_mask
from tests.operator_models import operator_model
from tests.trees import Rounds, random_rounds, verdicts, verify_inputs

Arrays = Mapping[str, NDArray[Any]]
Engine = Callable[[ir.Model, Arrays], Arrays]

# Seed, trees, nodes, tokens: among them single nodes, and rows that fill no vector register.
SIZES = ((1, 500, 1, 5), (2, 4500, 7, 3), (3, 4500, 12, 17), (4, 200, 33, 64), (5, 500, 9, 130))
SEEDS = pytest.mark.parametrize("size", SIZES, ids=lambda size: "x".join(map(str, size[1:])))


def onnxruntime(model: ir.Model, inputs: Arrays, *, optimized: bool = True) -> Arrays:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    if not optimized:
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    graph = ir.to_proto(model).SerializeToString()
    session = ort.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    results = session.run(names, dict(inputs))
    return {name: np.asarray(result) for name, result in zip(names, results, strict=True)}


def openvino(model: ir.Model, inputs: Arrays, *, refused: bool = True) -> Arrays:
    if refused:
        inline(model)
    else:
        InlinePass()(model)
    core = ov.Core()
    read = core.read_model(ir.to_proto(model).SerializeToString())
    compiled = core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    results = compiled(dict(inputs))
    return {output.get_any_name(): results[output] for output in compiled.outputs}


ENGINES = pytest.mark.parametrize("engine", [onnxruntime, openvino])


def unequal(found: Arrays, expected: Arrays) -> int:
    """How many sequences differ in anything."""
    batch = len(next(iter(expected.values())))
    differ = np.zeros(batch, np.bool_)
    for name, array in expected.items():
        assert found[name].shape == array.shape
        differ |= (found[name] != array).reshape(batch, -1).any(axis=1)
    return int(differ.sum())


def judged(engine: Engine, rule: Rule, rounds: Rounds, floats: ir.DataType | None = None) -> Arrays:
    model = operator_model(spec_verify(rule), rule, floats=floats or ir.DataType.FLOAT)
    return engine(model, verify_inputs(rule, rounds))


@SEEDS
@pytest.mark.parametrize("rule", RULES)
def test_onnxruntime_judges_as_the_oracle(rule: Rule, size: tuple[int, int, int, int]) -> None:
    rounds = random_rounds(*size)
    expected = verdicts(rule, rounds)
    _show_variety(expected, rounds)
    assert unequal(judged(onnxruntime, rule, rounds), expected) == 0


@pytest.mark.parametrize("rule", RULES)
def test_its_optimizers_change_no_bit(rule: Rule) -> None:
    rounds = random_rounds(6, 500, 8, 40)
    plain = partial(onnxruntime, optimized=False)
    assert unequal(judged(plain, rule, rounds), judged(onnxruntime, rule, rounds)) == 0


@pytest.mark.parametrize("rule", RULES)
def test_half_precision_logits(rule: Rule) -> None:
    rounds = random_rounds(7, 300, 8, 40).astype(np.float16)
    found = judged(onnxruntime, rule, rounds, ir.DataType.FLOAT16)
    assert unequal(found, verdicts(rule, rounds)) == 0


@SEEDS
def test_openvino_judges_greedily_as_the_oracle(size: tuple[int, int, int, int]) -> None:
    rounds = random_rounds(*size)
    expected = verdicts("greedy", rounds)
    assert unequal(judged(openvino, "greedy", rounds), expected) == 0
    half = rounds.astype(np.float16)
    found = judged(openvino, "greedy", half, ir.DataType.FLOAT16)
    assert unequal(found, verdicts("greedy", half)) == 0


def test_openvino_draws_other_tokens() -> None:
    """Which is why `inline` refuses; if this fails, it need no longer."""
    rounds = random_rounds(8, 100, 4, 20)
    found = judged(partial(openvino, refused=False), "walk", rounds)
    assert unequal(found, verdicts("walk", rounds)) > 50


@ENGINES
@pytest.mark.parametrize(("capacity", "window"), [(64, 0), (60, 7), (22, 3), (20, 1)])
def test_masks(engine: Engine, capacity: int, window: int) -> None:
    rounds = random_rounds(capacity, 200, 33, 2)
    model = operator_model(TREE_MASK, capacity=capacity, window=window)
    found = engine(model, {"parents": rounds.parents, "lengths": rounds.lengths})
    expected = tree_mask(rounds.parents, rounds.lengths, capacity, window)
    names = (value.name for value in TREE_MASK.outputs)
    assert unequal(found, dict(zip(names, expected, strict=True))) == 0


@ENGINES
def test_the_longest_chain(engine: Engine) -> None:
    """1024 nodes: pointers double ten times."""
    chain = np.arange(-1, 1023)[None]
    one, none = np.ones(1, np.int64), np.zeros(1, np.int64)
    mask = engine(operator_model(TREE_MASK, capacity=1024), {"parents": chain, "lengths": none})
    assert np.array_equal(mask["position_ids"][0], np.arange(1024))
    assert np.array_equal(mask["attention_mask"][0, 0], np.tri(1024, dtype=np.bool_))
    logits = np.zeros((1, 1024, 2), np.float32)
    logits[..., 1] = 1.0
    inputs: Arrays = {"logits": logits, "tokens": chain * 0 + 1, "parents": chain, "given": one}
    verdict = engine(operator_model(spec_verify("greedy"), "greedy"), inputs)
    assert np.array_equal(verdict["path"][0], np.arange(1024))
    assert verdict["emitted"][0].tolist() == [1] * 1024


@ENGINES
@pytest.mark.parametrize(
    ("dtype", "floats"), [(np.float32, ir.DataType.FLOAT), (np.float16, ir.DataType.FLOAT16)]
)
def test_compaction(engine: Engine, dtype: type[np.floating[Any]], floats: ir.DataType) -> None:
    rounds = random_rounds(9, 200, 12, 5)
    verdict = verdicts("token", rounds)
    cache = np.random.default_rng(0).normal(size=(200, 2, 40, 3)).astype(dtype)
    path, count, lengths = verdict["path"], verdict["count"], rounds.lengths
    assert (path[:, 1:] > np.arange(1, 12)).any()
    found = engine(
        operator_model(COMPACT_ROWS, floats=floats),
        {"cache": cache, "path": path, "count": count, "lengths": lengths},
    )
    assert unequal(found, {"compacted": compact_rows(cache, path, count, lengths)}) == 0


@pytest.mark.parametrize(
    ("rule", "operator", "replacement"),
    [
        ("greedy", "ReduceMin", "ReduceMax"),  # the highest of tied tokens
        ("greedy", "And", "Or"),
        ("walk", "LessOrEqual", "Less"),  # the token ahead, at an edge
        ("token", "Not", "Identity"),  # a rejection leaves the law as it was
        ("traversal", "GreaterOrEqual", "Greater"),  # ties with a filter's last token are lost
    ],
)
def test_a_changed_body_is_caught(rule: Rule, operator: str, replacement: str) -> None:
    rounds = random_rounds(3, 1000, 12, 17)
    model = operator_model(spec_verify(rule), rule)
    for function in model.functions.values():
        for node in function.all_nodes():
            if node.op_type == operator:
                node.op_type = replacement
    found = onnxruntime(model, verify_inputs(rule, rounds))
    assert unequal(found, verdicts(rule, rounds)) > 0


def _show_variety(expected: Arrays, rounds: Rounds) -> None:
    """That the rounds are no easy ones: rejected and accepted nodes, invalid rows, prompts."""
    if rounds.tokens.shape[1] > 1:
        accepted = expected["count"] - rounds.given
        assert accepted.min() == 0
        assert accepted.max() > 1
        assert (expected["next_token"] == INVALID).any()
        assert rounds.given.max() > 1
