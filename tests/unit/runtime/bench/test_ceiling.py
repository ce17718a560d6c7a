"""What steps read, in graphs made here, and what follows from it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from speccompile.compiler.graph import GraphBuilder, declare
from speccompile.runtime.bench.ceiling import Ceiling, StepBytes, step_bytes
from speccompile.runtime.bench.graph_weights import read_weights
from speccompile.runtime.bench.limit import Limit
from speccompile.runtime.bench.run import Run
from speccompile.runtime.errors import EngineError
from speccompile.runtime.manifest import EngineInfo
from speccompile.runtime.session import Finish
from speccompile.runtime.statistics import Statistics

TARGET = EngineInfo(
    role="target",
    backend="openvino",
    graph="model.onnx",
    precision="fp16",
    arithmetic="fp32",
    layers=3,
    kv_heads=2,
    heads=4,
    head_dim=8,
    capacity=64,
    vocab_size=7,
    min_rows=1,
    shares_cache=False,
)


def graph(folder: Path, *, tied: bool) -> Path:
    """Embeddings [7, 4] in fp16, an int8 matrix [5, 4] with a scale, and a head in fp16."""
    builder = GraphBuilder()
    ids = declare("input_ids", ir.DataType.INT64, (1, "N"))
    table = builder.constant("table", np.ones((7, 4), np.float16))
    rows = builder.op("Gather", "rows", table, ids)
    scale = builder.constant("scale", np.ones(5, np.float32))
    int8 = builder.op(
        "DequantizeLinear", "int8", builder.constant("bytes", np.ones((5, 4), np.int8)), scale
    )
    hidden = builder.op("MatMul", "hidden", rows, int8)
    stored = table if tied else builder.constant("head", np.ones((7, 4), np.float16))
    head = builder.op("Cast", "cast", stored, to=ir.DataType.FLOAT)
    logits = builder.op("MatMul", "logits", hidden, head)
    path = folder / "model.onnx"
    ir.save(builder.model("tiny", [ids], [logits]), path, external_data="model.onnx.data")
    return path


@pytest.mark.parametrize("tied", [True, False])
def test_a_table_is_read_where_it_is_a_head_too(tmp_path: Path, tied: bool) -> None:
    reads = step_bytes(TARGET, graph(tmp_path, tied=tied))
    assert reads.weights == 7 * 4 * 4 + 5 * 4 + 5 * 4  # the head as fp32, bytes, scales


def test_bf16_arithmetic_halves_what_is_no_byte(tmp_path: Path) -> None:
    info = replace(TARGET, arithmetic="bf16")
    reads = step_bytes(info, graph(tmp_path, tied=True))
    assert reads == StepBytes(7 * 4 * 2 + 5 * 4 + 5 * 2, 2 * 3 * 2 * 8 * 2)


@pytest.mark.parametrize(
    ("changes", "number"),
    [
        ({}, 4),
        ({"role": "draft"}, 2),
        ({"role": "draft", "shares_cache": True}, 4),
        ({"role": "draft", "backend": "onnxruntime"}, 4),
    ],
)
def test_a_row_is_keys_and_values_of_all_layers(
    tmp_path: Path, changes: dict[str, object], number: int
) -> None:
    info = replace(TARGET, **changes)  # type: ignore[arg-type]
    assert step_bytes(info, graph(tmp_path, tied=True)).row == 2 * 3 * 2 * 8 * number


def test_weights_are_those_that_onnx_ir_reads(tmp_path: Path) -> None:
    path = graph(tmp_path, tied=True)
    found = read_weights(path)
    stored = ir.load(path).graph.initializers
    assert found.keys() == stored.keys()
    for name, value in stored.items():
        assert value.const_value is not None
        assert found[name].dtype == value.const_value.dtype
        assert found[name].count == value.const_value.size
        users = {(use.node.op_type, use.idx) for use in value.uses()}
        assert found[name].readers == users
    assert found["table"].readers == {("Gather", 0), ("Cast", 0)}


@pytest.mark.parametrize("content", [b"", b"no graph at all", b"\x3a\xff\xff", b"\x3a\x00" * 2])
def test_another_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    with pytest.raises(EngineError, match="is no ONNX graph; build the artifact again"):
        read_weights(path)
    with pytest.raises(EngineError, match="absent: cannot be read"):
        read_weights(tmp_path / "absent")


def run(tokens: int, seconds: float, **counts: int) -> Run:
    statistics = Statistics(new_tokens=tokens + 1, first_token_seconds=1.0)
    for name, value in counts.items():
        setattr(statistics, name, value)
    return Run((1,) * (tokens + 1), Finish.LENGTH, 1.0 + seconds, statistics)


CEILING = Ceiling(
    Limit(1, (1000.0,), None), {"target": StepBytes(100, 2), "draft": StepBytes(20, 1)}
)


def test_the_ceiling_is_bandwidth_by_tokens_over_what_was_read() -> None:
    # Two rounds of four tokens, after 10 and 14, with three steps of the draft in each.
    speculative = run(8, 0.5, target_steps=2, target_context=24, draft_steps=6, draft_context=72)
    assert CEILING.bytes_read([speculative]) == 2 * 100 + 24 * 2 + 6 * 20 + 72
    assert CEILING.tokens_per_second([speculative]) == 1000 * 8 / 440
    share = CEILING.share([speculative])
    assert share == pytest.approx(speculative.tokens_per_second / (1000 * 8 / 440)) == 0.88


def test_plain_decoding_needs_the_target_alone() -> None:
    plain = run(2, 0.25, target_steps=2, target_context=23)
    alone = Ceiling(CEILING.limit, {"target": CEILING.reads["target"]})
    assert alone.tokens_per_second([plain]) == CEILING.tokens_per_second([plain]) == 2000 / 246


def test_runs_together_weigh_by_what_they_read() -> None:
    runs = [run(2, 1.0, target_steps=2), run(6, 1.0, target_steps=6)]
    assert CEILING.share(runs) == pytest.approx(800 / 2 / 1000)
