"""Trees in ONNX Runtime: a row has the bits that it has at the end of its ancestors' chain."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from speccompile.runtime.engine import Logits
from speccompile.runtime.engines.onnxruntime import OnnxRuntimeEngine
from speccompile.runtime.manifest import EngineInfo
from tests.families import CONTEXT, tiny
from tests.lowered import tiny_engine

CHANGED = 0.01  # what another parent changes at least; measured: 0.25

# All channels turned, norms before that, some channels turned, some layers, none but learned
# positions; all layers sliding, and every other one with a softcap.
FAMILIES = pytest.mark.parametrize(
    "family", ["llama", "qwen3", "phi4", "smollm3", "gpt2", "mistral-sliding", "gemma2"]
)
_LONG = 256
_LONG_TOKENS = [int(token) for token in np.random.default_rng(3).integers(0, 512, _LONG)]
CHAIN = 3
"""Rows that follow one another before each tree branches."""
TREES = {
    "two-chains": [-1, 0, 1, 2, 3, 1, 5, 6],
    "bush": [-1, 0, 1, 0, 0, 1, 2, 2, 3, 5, 5, 9, 1, 7],
    "forest": [-1, 0, 1, -1, 3, -1, 4, 4],
    "deeper-than-a-window": [-1, 0, 1, 0, *range(3, 30)],
}
SHAPES = pytest.mark.parametrize("parents", TREES.values(), ids=TREES.keys())
STARTS = pytest.mark.parametrize("start", [0, 5, 60], ids=["empty", "within-window", "beyond"])


class Case(NamedTuple):
    info: EngineInfo
    graph: Path
    engine: OnnxRuntimeEngine


@pytest.fixture(scope="module")
def case_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Case]:
    @cache
    def build(family: str, capacity: int = CONTEXT, precision: str = "fp32") -> Case:
        model, folder = tiny(family), tmp_path_factory.mktemp(family)
        info, graph = tiny_engine(
            model, "onnxruntime", folder, capacity=capacity, precision=precision
        )
        return Case(info, graph, OnnxRuntimeEngine(info, graph, threads=1))

    return build


@FAMILIES
@SHAPES
@STARTS
def test_a_row_is_the_last_of_its_chain(
    case_of: Callable[..., Case],
    tokens: list[int],
    family: str,
    parents: list[int],
    start: int,
) -> None:
    engine = case_of(family).engine
    _commit(engine, tokens[:start])
    _check_rows(engine, tokens[start : start + len(parents)], parents, range(len(parents)))


@pytest.mark.parametrize("precision", ["fp16", "bf16", "int8"])
@SHAPES
def test_that_holds_for_weights_of_any_precision(
    case_of: Callable[..., Case], tokens: list[int], parents: list[int], precision: str
) -> None:
    engine = case_of("llama", precision=precision).engine
    _commit(engine, tokens[:60])
    _check_rows(engine, tokens[60 : 60 + len(parents)], parents, range(len(parents)))


@FAMILIES
@SHAPES
@STARTS
def test_plain_decoding_goes_on_from_a_tree_as_if_nothing_had_been_tried(
    case_of: Callable[..., Case],
    tokens: list[int],
    family: str,
    parents: list[int],
    start: int,
) -> None:
    """The rows before the tree branches may stay in the cache."""
    engine = case_of(family).engine
    end = start + len(parents)
    _commit(engine, tokens[:start])
    engine.step(tokens[start:end])
    engine.rollback(start + CHAIN)
    expected = engine.step(tokens[-2:]).copy()
    engine.rollback(start)
    engine.step(tokens[:CHAIN])  # other rows, so that the slots are seen to be written again
    engine.rollback(start)
    engine.step(tokens[start:end], parents=parents)
    engine.rollback(start + CHAIN)
    np.testing.assert_array_equal(engine.step(tokens[-2:]), expected)


@FAMILIES
def test_another_parent_gives_other_logits(
    case_of: Callable[..., Case], tokens: list[int], family: str
) -> None:
    """What the tests above would see, were a row computed behind another one."""
    engine = case_of(family).engine
    _commit(engine, tokens[:70])
    right = engine.step(tokens[70:75], parents=[-1, 0, 1, 2, 1]).copy()
    engine.rollback(70)
    wrong = engine.step(tokens[70:75], parents=[-1, 0, 1, 2, 0])
    np.testing.assert_array_equal(wrong[:4], right[:4])
    assert _error(wrong[4], right[4]) >= CHANGED


@pytest.mark.parametrize("family", ["mistral-sliding", "gemma2"])
@pytest.mark.parametrize(
    ("start", "parents", "rows"),
    [(200, TREES["deeper-than-a-window"], range(30)), (128, [-1, *[0] * 127], (0, 1, 64, 127))],
    ids=["deep", "wide"],
)
def test_a_window_counts_positions_and_not_slots(
    case_of: Callable[..., Case],
    family: str,
    start: int,
    parents: list[int],
    rows: Sequence[int],
) -> None:
    engine = case_of(family, _LONG).engine
    _commit(engine, _LONG_TOKENS[:start])
    _check_rows(engine, _LONG_TOKENS[start : start + len(parents)], parents, rows)


def test_the_last_rows_alone_are_those_of_all(
    case_of: Callable[..., Case], tokens: list[int]
) -> None:
    engine, parents = case_of("llama").engine, TREES["bush"]
    _commit(engine, tokens[:20])
    rows = engine.step(tokens[20:34], parents=parents).copy()
    engine.rollback(20)
    np.testing.assert_array_equal(engine.step(tokens[20:34], parents=parents, last=4), rows[-4:])
    assert engine.length == 34


@pytest.mark.parametrize("parents", [[0, 0], [-1, 1], [-2, 0]])
def test_rows_that_follow_no_row_before_them_are_refused(
    case_of: Callable[..., Case], tokens: list[int], parents: list[int]
) -> None:
    engine = case_of("llama").engine
    _commit(engine, tokens[:20])
    with pytest.raises(ValueError, match="cannot follow row"):
        engine.step(tokens[20:22], parents=parents)
    assert engine.length == 20


def _commit(engine: OnnxRuntimeEngine, tokens: Sequence[int]) -> None:
    engine.rollback(0)
    if tokens:
        engine.step(tokens)


def _check_rows(
    engine: OnnxRuntimeEngine, guesses: Sequence[int], parents: Sequence[int], rows: Sequence[int]
) -> None:
    """Each of `rows` of a tree behind what is committed, against the chain of its ancestors."""
    start = engine.length
    tree = engine.step(guesses, parents=parents).copy()
    for row in rows:
        path = _path(parents, row)
        engine.rollback(start)
        chain = engine.step([guesses[node] for node in path])
        np.testing.assert_array_equal(tree[row], chain[-1], f"row {row}, behind rows {path[:-1]}")


def _path(parents: Sequence[int], row: int) -> list[int]:
    """The ancestors of a row and itself, the first one first."""
    path: list[int] = []
    while row >= 0:
        path.insert(0, row)
        row = parents[row]
    return path


def _error(row: Logits, expected: Logits) -> float:
    return float(np.abs(row - expected).max() / np.abs(expected).max())
