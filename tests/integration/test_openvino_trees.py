"""Steps of trees on OpenVINO: a row says what it says at the end of a chain of its ancestors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import onnx_ir as ir
import pytest

from speccompile.runtime.engine import Logits
from speccompile.runtime.engines.openvino import OpenVINOEngine
from speccompile.runtime.errors import EngineError
from speccompile.runtime.manifest import EngineInfo
from tests.families import CONTEXT, tiny
from tests.lowered import tiny_engine

# The largest error over the largest logit of fp32 arithmetic: sums run in another order.
TOLERANCE = 1e-5  # measured: 2e-6
OTHER = 1e-2  # what another parent changes at least; measured: 0.1

TREES = {
    "branches": [-1, 0, 1, 0, 3, 3, 1, -1],
    "stars": [-1, 0, 0, 0, 0, -1, -1],
    "forest": [-1, -1, 1, 0, 2, 3, 3],
    "sides": [*range(-1, 25), -1, *range(26, 51)],  # two chains longer than a window
    "bush": [-1, 0, 1, 2, *(index // 2 for index in range(36))],  # more rows than a page
}
STARTS = [0, 1, 30, 40]  # 24 positions are a window; 32 slots are a page

PAGED, SOFTCAPPED, WINDOWED = ["llama", "qwen3", "gpt2"], ["gemma2"], ["mistral-sliding", "gemma3"]


class Case(NamedTuple):
    info: EngineInfo
    graph: Path
    engine: OpenVINOEngine


@pytest.fixture(scope="module")
def case_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Case]:
    @cache
    def build(family: str) -> Case:
        model, folder = tiny(family), tmp_path_factory.mktemp(family)
        info, path = tiny_engine(model, "openvino", folder, capacity=CONTEXT)
        return Case(info, path, OpenVINOEngine(info, path, threads=1))

    return build


@pytest.mark.parametrize("family", [*PAGED, *SOFTCAPPED])
@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("shape", TREES)
def test_a_row_sees_its_ancestors_alone(
    case_of: Callable[[str], Case], tokens: list[int], family: str, start: int, shape: str
) -> None:
    engine, parents = case_of(family).engine, TREES[shape]
    assert engine.takes_trees
    guesses = tokens[start : start + len(parents)]
    rows = _step(engine, tokens[:start], guesses, parents)
    for row in range(len(parents)):
        path = _path(parents, row)
        chain = _step(engine, tokens[:start], [guesses[each] for each in path])
        assert _error(rows[row], chain[-1]) <= TOLERANCE


@pytest.mark.parametrize("family", [*PAGED, *SOFTCAPPED])
def test_another_parent_changes_a_row_and_what_follows_it(
    case_of: Callable[[str], Case], tokens: list[int], family: str
) -> None:
    engine, parents = case_of(family).engine, [-1, 0, 1, 1, 3]
    rows = _step(engine, tokens[:40], tokens[40:45], parents)
    others = _step(engine, tokens[:40], tokens[40:45], [-1, 0, 1, 2, 3])
    np.testing.assert_array_equal(others[:3], rows[:3])
    assert _error(others[3], rows[3]) >= OTHER
    assert _error(others[4], rows[4]) >= OTHER


@pytest.mark.parametrize("arithmetic", ["fp32", "bf16"])
@pytest.mark.parametrize("family", [*PAGED, *SOFTCAPPED])
def test_the_first_chain_has_the_bits_of_a_step_without_branches(
    case_of: Callable[[str], Case],
    tokens: list[int],
    family: str,
    arithmetic: Literal["fp32", "bf16"],
) -> None:
    info, graph, _ = case_of(family)
    engine = OpenVINOEngine(replace(info, arithmetic=arithmetic), graph, threads=1)
    for start, count in product(STARTS, (2, 3, 5)):
        context, guesses = tokens[:start], tokens[start : start + 9]
        chain = list(range(-1, count - 1))
        rows = _step(engine, context, guesses, [*chain, *(node // 3 for node in range(9 - count))])
        np.testing.assert_array_equal(rows[:count], _step(engine, context, guesses)[:count])
        np.testing.assert_array_equal(rows[:count], _step(engine, context, guesses[:count]))


@pytest.mark.parametrize("family", [*PAGED, *SOFTCAPPED])
def test_a_tree_that_is_forgotten_leaves_no_trace(
    case_of: Callable[[str], Case], tokens: list[int], family: str
) -> None:
    """The part of a tree that comes first and is a chain stays; the slots behind it are free."""
    engine = case_of(family).engine
    expected = _step(engine, tokens[:40], tokens[40:48])
    _step(engine, tokens[:40], [*tokens[40:43], 7, 8, 9], [-1, 0, 1, 0, 3, 4])
    engine.rollback(43)
    np.testing.assert_array_equal(engine.step(tokens[43:48]), expected[3:])


@pytest.mark.parametrize("family", [*PAGED, *SOFTCAPPED])
def test_the_last_rows_alone_are_those_of_all(
    case_of: Callable[[str], Case], tokens: list[int], family: str
) -> None:
    engine, parents = case_of(family).engine, TREES["branches"]
    rows = _step(engine, tokens[:30], tokens[30:38], parents)
    engine.rollback(30)
    last = engine.step(tokens[30:38], parents=parents, last=3)
    np.testing.assert_array_equal(last, rows[-3:])


@pytest.mark.parametrize("family", WINDOWED)
def test_windows_of_slots_take_chains_only(
    case_of: Callable[[str], Case], tokens: list[int], family: str
) -> None:
    engine = case_of(family).engine
    assert not engine.takes_trees
    expected = _step(engine, tokens[:40], tokens[40:43])
    np.testing.assert_array_equal(_step(engine, tokens[:40], tokens[40:43], [-1, 0, 1]), expected)
    with pytest.raises(EngineError, match=r"\A.*model\.onnx: .* sliding window .*onnxruntime.*\Z"):
        engine.step(tokens[43:46], parents=[-1, 0, 0])
    assert engine.length == 43


def test_a_graph_of_an_older_version_takes_chains_only(
    case_of: Callable[[str], Case], tokens: list[int]
) -> None:
    info, graph, engine = case_of("llama")
    model = ir.load(graph)
    for node in model.graph:
        if node.op_type == "PagedAttention":
            node.resize_inputs(10)
    inputs = [value for value in model.graph.inputs if value.uses()]
    model.graph.inputs[:] = inputs
    path = graph.with_name("older.onnx")
    ir.save(model, path)
    older = OpenVINOEngine(info, path, threads=1)
    assert not older.takes_trees
    rows = _step(older, tokens[:40], tokens[40:45])
    np.testing.assert_array_equal(rows, _step(engine, tokens[:40], tokens[40:45]))
    with pytest.raises(EngineError, match=r"\A.*older\.onnx: .*build the artifact again\Z"):
        older.step(tokens[45:48], parents=[-1, 0, 0])


@pytest.mark.parametrize("parents", [[-1, 1, 0], [-1, -2, 0], [-1, 0], [-1, 0, 1, 2]])
def test_rows_follow_rows_before_them(case_of: Callable[[str], Case], parents: list[int]) -> None:
    engine = case_of("llama").engine
    engine.rollback(0)
    with pytest.raises(ValueError, match="cannot follow"):
        engine.step([1, 2, 3], parents=parents)


def _step(
    engine: OpenVINOEngine,
    context: Sequence[int],
    tokens: Sequence[int],
    parents: Sequence[int] | None = None,
) -> Logits:
    """The logits of a step behind a `context`."""
    engine.rollback(0)
    if context:
        engine.step(context)
    return engine.step(tokens, parents=parents).copy()


def _path(parents: Sequence[int], row: int) -> list[int]:
    """The rows from the first ancestor of a row to itself."""
    path = [row]
    while parents[path[0]] >= 0:
        path.insert(0, parents[path[0]])
    return path


def _error(rows: Logits, expected: Logits) -> float:
    return float(np.abs(rows - expected).max() / np.abs(expected).max())
