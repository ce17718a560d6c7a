"""The engines on lowered graphs, against the contract that these were lowered from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import onnx_ir as ir
import pytest
from numpy.typing import NDArray

from speccompile.compiler.lower.backends import lowering
from speccompile.compiler.lower.passes import run_passes
from speccompile.compiler.reference import ContractEngine
from speccompile.runtime.engine import Engine
from speccompile.runtime.engines.cursor import Cursor
from speccompile.runtime.engines.opening import open_engine
from speccompile.runtime.errors import EngineError, RequestError
from speccompile.runtime.manifest import EngineInfo
from speccompile.runtime.metered import MeteredEngine

if TYPE_CHECKING:
    from tests.conftest import Contract

Backend = Literal["openvino", "onnxruntime"]
Precision = Literal["fp32", "fp16", "int8"]

TOLERANCE = 1e-4  # relative, of fp32 arithmetic; measured: 3e-6

# Mean KL divergence in nats where activations are quantized, which the contract does not.
# Measured: 0.0028 in either engine, and 0.0030 from quantizing the weights.
INT8_DIVERGENCE = 0.01

BACKENDS = pytest.mark.parametrize("backend", ["openvino", "onnxruntime"])
FLOATS = pytest.mark.parametrize("precision", ["fp32", "fp16"])


@dataclass(frozen=True)
class Lowered:
    info: EngineInfo
    graph: Path
    expected: NDArray[np.float32]
    """The contract's logits of the whole sequence, [S, V]."""

    def open(self, info: EngineInfo | None = None) -> Engine:
        return open_engine(info or self.info, self.graph, threads=1)


@pytest.fixture(scope="module")
def lowered(
    contract_of: Callable[[str], Contract],
    tokens: list[int],
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[Backend, Precision], Lowered]:
    @cache
    def lower(backend: Backend, precision: Precision) -> Lowered:
        contract = contract_of(precision)
        model, graph = contract.graph(), tmp_path_factory.mktemp(backend) / "model.onnx"
        run_passes(model, lowering(backend))
        ir.save(model, graph, external_data="model.onnx.data")
        config = contract.tiny.config
        info = EngineInfo(
            role="target",
            backend=backend,
            graph=graph.name,
            precision=precision,
            arithmetic="fp32",
            layers=config.layers,
            kv_heads=config.kv_heads,
            heads=config.heads,
            head_dim=config.head_dim,
            capacity=len(tokens),
            vocab_size=config.vocab_size,
            min_rows=1,
            shares_cache=False,
        )
        return Lowered(info, graph, ContractEngine(contract.path, threads=1).step(tokens))

    return lower


@BACKENDS
@FLOATS
def test_logits_equal_the_contract(
    lowered: Callable[[Backend, Precision], Lowered],
    tokens: list[int],
    backend: Backend,
    precision: Precision,
) -> None:
    case = lowered(backend, precision)
    logits = _in_steps(case.open(), tokens)
    assert logits.dtype == np.float32
    assert _relative_error(logits, case.expected) <= TOLERANCE


@BACKENDS
def test_int8_logits_are_close_to_the_contract(
    lowered: Callable[[Backend, Precision], Lowered], tokens: list[int], backend: Backend
) -> None:
    case = lowered(backend, "int8")
    assert _divergence(_in_steps(case.open(), tokens), case.expected) <= INT8_DIVERGENCE


def test_a_draft_may_round_its_cache(
    lowered: Callable[[Backend, Precision], Lowered], tokens: list[int]
) -> None:
    case = lowered("openvino", "fp32")
    engine = case.open(replace(case.info, role="draft"))
    error = _relative_error(_in_steps(engine, tokens), case.expected)
    assert TOLERANCE < error <= 1e-2  # measured: 2e-3


def test_bf16_arithmetic_is_close(
    lowered: Callable[[Backend, Precision], Lowered], tokens: list[int]
) -> None:
    case = lowered("openvino", "fp16")
    logits = _in_steps(case.open(replace(case.info, arithmetic="bf16")), tokens)
    assert _divergence(logits, case.expected) <= INT8_DIVERGENCE  # measured: 0.0007


@BACKENDS
@pytest.mark.parametrize("precision", ["fp32", "fp16", "int8"])
def test_a_step_after_rollback_equals_a_fresh_one(
    lowered: Callable[[Backend, Precision], Lowered],
    tokens: list[int],
    backend: Backend,
    precision: Precision,
) -> None:
    engine = lowered(backend, precision).open()
    engine.step(tokens[:40])
    expected = engine.step(tokens[40:46]).copy()
    engine.rollback(40)
    engine.step(tokens[60:80])  # past a page
    engine.rollback(40)
    assert engine.length == 40
    np.testing.assert_array_equal(engine.step(tokens[40:46]), expected)


@pytest.mark.parametrize("rows", range(3, 10))
def test_rows_do_not_depend_on_their_number_from_two_on(
    lowered: Callable[[Backend, Precision], Lowered], tokens: list[int], rows: int
) -> None:
    engine = lowered("openvino", "fp16").open()
    engine.step(tokens[:40])
    expected = engine.step(tokens[40:42]).copy()
    engine.rollback(40)
    np.testing.assert_array_equal(engine.step(tokens[40 : 40 + rows])[:2], expected)


def test_a_capacity_that_ends_within_a_page(
    lowered: Callable[[Backend, Precision], Lowered], tokens: list[int]
) -> None:
    case = lowered("openvino", "fp32")
    engine = case.open(replace(case.info, capacity=70))
    logits = _in_steps(engine, tokens[:70])
    assert _relative_error(logits, case.expected[:70]) <= TOLERANCE
    with pytest.raises(RequestError, match=r"70 \+ 1 tokens pass the context of 70"):
        engine.step([1])


@BACKENDS
def test_a_full_cache_refuses_rows_and_stays_usable(
    lowered: Callable[[Backend, Precision], Lowered], tokens: list[int], backend: Backend
) -> None:
    case = lowered(backend, "fp32")
    engine = case.open()
    engine.step(tokens[:-1])
    with pytest.raises(RequestError, match=r"95 \+ 2 tokens pass the context of 96"):
        engine.step([1, 2])
    assert engine.length == 95
    assert _relative_error(engine.step(tokens[-1:]), case.expected[-1:]) <= TOLERANCE


def test_without_the_operators_an_engine_says_how_to_have_them(
    lowered: Callable[[Backend, Precision], Lowered],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = lowered("onnxruntime", "fp16")
    monkeypatch.setenv("SPECCOMPILE_CACHE", str(tmp_path))
    monkeypatch.setenv("CC", "/no/such/compiler")
    with pytest.raises(EngineError, match=r"\A.*model\.onnx: .* need a C compiler, .* in \$CC\Z"):
        case.open()


@BACKENDS
@pytest.mark.parametrize("content", [None, b"", b"not a graph"])
def test_a_broken_file_is_one_line(
    lowered: Callable[[Backend, Precision], Lowered],
    tmp_path: Path,
    backend: Backend,
    content: bytes | None,
) -> None:
    path = tmp_path / "model.onnx"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(EngineError, match=r"\A.*model\.onnx: .* cannot open it: .+\Z"):
        open_engine(lowered(backend, "fp32").info, path)


@BACKENDS
def test_a_truncated_weights_file_is_one_line(
    lowered: Callable[[Backend, Precision], Lowered], tmp_path: Path, backend: Backend
) -> None:
    case = lowered(backend, "fp32")
    path = tmp_path / "model.onnx"
    path.write_bytes(case.graph.read_bytes())
    weights = (case.graph.parent / "model.onnx.data").read_bytes()
    (tmp_path / "model.onnx.data").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(EngineError, match=r"\A.*model\.onnx: .* cannot open it: .+\Z"):
        open_engine(case.info, path)


def _in_steps(engine: Engine, tokens: Sequence[int]) -> NDArray[np.float32]:
    """The logits of `tokens`, appended as a prompt, one row, a round of 17 rows, and the rest."""
    steps = pairwise([0, 7, 8, 25, len(tokens)])
    logits = np.concatenate([engine.step(tokens[start:end]).copy() for start, end in steps])
    assert engine.length == len(tokens)
    return logits


def _relative_error(logits: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    return float(np.abs(logits - expected).max() / np.abs(expected).max())


def _divergence(logits: NDArray[np.float32], expected: NDArray[np.float32]) -> float:
    """Mean KL(expected || logits) over the rows."""
    ours, theirs = _log_softmax(logits), _log_softmax(expected)
    return float((np.exp(theirs) * (theirs - ours)).sum(axis=-1).mean())


def _log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    shifted = logits - logits.max(axis=-1, keepdims=True).astype(np.float64)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)))


@BACKENDS
def test_two_engines_share_one_cache(
    lowered: Callable[[Backend, Precision], Lowered], tokens: list[int], backend: Backend
) -> None:
    """What one writes the other reads, and the target's rows are the same bits with or without."""
    target_case, draft_case = lowered(backend, "fp16"), lowered(backend, "int8")
    alone = target_case.open()
    alone.step(tokens[:40])
    expected = alone.step(tokens[40:44]).copy()
    target = target_case.open()
    target.step(tokens[:40])
    info = replace(draft_case.info, role="draft", shares_cache=True)
    draft = open_engine(info, draft_case.graph, threads=1, cache_of=target)
    assert isinstance(draft, Cursor)
    draft.adopt(40)
    guesses = draft.step(tokens[40:44])
    assert _divergence(guesses, target_case.expected[40:44]) <= INT8_DIVERGENCE
    np.testing.assert_array_equal(target.step(tokens[40:44]), expected)


def test_a_cache_is_not_shared_across_backends(
    lowered: Callable[[Backend, Precision], Lowered],
) -> None:
    target, draft = lowered("openvino", "fp16"), lowered("onnxruntime", "int8")
    with pytest.raises(EngineError, match="cannot share the cache"):
        open_engine(draft.info, draft.graph, threads=1, cache_of=target.open())


@BACKENDS
def test_the_library_s_part_of_a_step_is_told(
    lowered: Callable[[Backend, Precision], Lowered], tokens: list[int], backend: Backend
) -> None:
    found = lowered(backend, "fp32")
    metered = MeteredEngine(found.open(replace(found.info, min_rows=2)))
    metered.step(tokens[:8])
    metered.step(tokens[8:9])
    work = metered.work
    assert (work.steps, work.context) == (2, 8 + 9)
    assert 0.0 < work.computing < work.seconds
