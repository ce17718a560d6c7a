"""Every family through every engine, against transformers: contexts longer than any window."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pytest

from speccompile.runtime.engine import Engine, Logits, prefill
from speccompile.runtime.engines.cursor import Cursor
from speccompile.runtime.engines.opening import open_engine
from speccompile.runtime.manifest import EngineInfo
from tests.families import CONTEXT, TINY, tiny
from tests.lowered import tiny_engine

Backend = Literal["openvino", "onnxruntime"]

TOLERANCE = 1e-4  # relative; measured: 6e-6

BACKENDS = pytest.mark.parametrize("backend", ["openvino", "onnxruntime"])
FAMILIES = pytest.mark.parametrize("family", TINY)


class Case(NamedTuple):
    info: EngineInfo
    graph: Path
    engine: Engine
    expected: Logits
    """transformers' logits of the whole sequence, [S, V]."""


@pytest.fixture(scope="module")
def case_of(
    tokens: list[int], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, Backend], Case]:
    @cache
    def build(family: str, backend: Backend) -> Case:
        model, folder = tiny(family), tmp_path_factory.mktemp(family)
        info, graph = tiny_engine(model, backend, folder, capacity=CONTEXT)
        return Case(info, graph, open_engine(info, graph, threads=1), model.logits(tokens))

    return build


@BACKENDS
@FAMILIES
@pytest.mark.parametrize(
    "ends",
    [[CONTEXT], [7, 8, 25, 60, 61, CONTEXT], [40, *range(41, 52), CONTEXT]],
    ids=["at-once", "in-chunks", "row-by-row"],
)
def test_logits_equal_transformers(
    case_of: Callable[[str, Backend], Case],
    tokens: list[int],
    family: str,
    backend: Backend,
    ends: list[int],
) -> None:
    _, _, engine, expected = case_of(family, backend)
    engine.rollback(0)
    steps = pairwise([0, *ends])
    rows = np.concatenate([engine.step(tokens[start:end]).copy() for start, end in steps])
    _check(rows, expected, range(CONTEXT))


@BACKENDS
@FAMILIES
def test_rolled_back_rows_leave_no_trace(
    case_of: Callable[[str, Backend], Case], tokens: list[int], family: str, backend: Backend
) -> None:
    _, _, engine, expected = case_of(family, backend)
    engine.rollback(0)
    engine.step(tokens[:50])
    row = engine.step(tokens[50:56]).copy()
    engine.rollback(50)
    engine.step(tokens[10:46])
    engine.rollback(50)
    np.testing.assert_array_equal(engine.step(tokens[50:56]), row)
    _check(row, expected, range(50, 56))


@BACKENDS
@FAMILIES
@pytest.mark.parametrize("start", [5, 70])
def test_rows_do_not_depend_on_their_number_from_two_on(
    case_of: Callable[[str, Backend], Case],
    tokens: list[int],
    family: str,
    backend: Backend,
    start: int,
) -> None:
    engine = case_of(family, backend).engine
    engine.rollback(0)
    engine.step(tokens[:start])
    expected = engine.step(tokens[start : start + 2]).copy()
    for count in (3, 5, 8):
        engine.rollback(start)
        np.testing.assert_array_equal(engine.step(tokens[start : start + count])[:2], expected)


@BACKENDS
@FAMILIES
def test_the_last_rows_alone_are_those_of_all(
    case_of: Callable[[str, Backend], Case], tokens: list[int], family: str, backend: Backend
) -> None:
    _, _, engine, expected = case_of(family, backend)
    engine.rollback(0)
    rows = engine.step(tokens[:60]).copy()
    engine.rollback(0)
    last = engine.step(tokens[:60], last=2)
    assert last.shape == (2, rows.shape[1])
    np.testing.assert_array_equal(last, rows[-2:])
    engine.rollback(0)
    _check(prefill(engine, tokens[:60])[None], expected, [59])
    assert engine.length == 60


@BACKENDS
@pytest.mark.parametrize("family", ["gemma2", "gemma3"])
def test_two_engines_share_one_cache(
    case_of: Callable[[str, Backend], Case], tokens: list[int], family: str, backend: Backend
) -> None:
    """What one writes the other reads, whichever way its cache is held."""
    info, graph, target, expected = case_of(family, backend)
    target.rollback(0)
    target.step(tokens[:40])
    sharing = replace(info, role="draft", shares_cache=True)
    draft = open_engine(sharing, graph, threads=1, cache_of=target)
    assert isinstance(draft, Cursor)
    draft.adopt(40)
    _check(draft.step(tokens[40:44]), expected, range(40, 44))
    draft.rollback(40)
    draft.step(tokens[60:70])  # wrong guesses, which the target overwrites
    _check(target.step(tokens[40:50]), expected, range(40, 50))


def _check(rows: Logits, expected: Logits, at: Sequence[int]) -> None:
    assert rows.dtype == np.float32
    error = np.abs(rows - expected[list(at)]).max() / np.abs(expected).max()
    assert error <= TOLERANCE
