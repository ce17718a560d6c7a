from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from numpy.typing import NDArray

from speccompile.compiler.lower.last_rows import LAST_ROWS
from speccompile.compiler.lower.passes import LoweringError, run_passes
from tests.unit.compiler.lower.graphs import CAPACITY, CONFIG, STORAGES, TOKENS, contract, write


@pytest.mark.parametrize("rows", [[19], [18, 19], [3, 0], list(range(20))], ids=str)
def test_the_rows_asked_for_are_those_of_all(tmp_path: Path, rows: list[int]) -> None:
    write(tmp_path, STORAGES["fp16"])
    model = contract(tmp_path)
    expected = _logits(model, tmp_path, {})
    assert run_passes(model, [LAST_ROWS]) == {"last_rows": 1}
    found = _logits(model, tmp_path, {"logit_rows": np.array(rows)})
    assert found.shape == (len(rows), CONFIG.vocab_size)
    np.testing.assert_allclose(found, expected[rows], rtol=0, atol=1e-5 * np.abs(expected).max())


def test_only_the_head_has_fewer_rows(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["fp32"])
    model = contract(tmp_path)
    run_passes(model, [LAST_ROWS])
    (gather,) = (node for node in model.graph if node.name == "/model/last_rows")
    assert {node.name for node in gather.outputs[0].consumers()} == {"/model/norm"}
    assert [value.name for value in model.graph.inputs][-5:-3] == ["logit_rows", "key_cache.0"]
    assert str(model.graph.outputs[0].shape) == "[B,R,40]"


def test_a_graph_without_a_head_is_refused() -> None:
    with pytest.raises(LoweringError, match="no /model/norm"):
        run_passes(ir.Model(ir.Graph([], [], nodes=[]), ir_version=11), [LAST_ROWS])


def _logits(
    model: ir.Model, folder: Path, more: dict[str, NDArray[np.int64]]
) -> NDArray[np.float32]:
    path, slots = folder / "run.onnx", np.arange(len(TOKENS))
    ir.save(model, path, external_data="run.onnx.data")
    cache = np.zeros((1, CONFIG.kv_heads, CAPACITY, CONFIG.head_dim), np.float32)
    feeds = {
        "input_ids": np.array([TOKENS]),
        "position_ids": slots[None],
        "attention_mask": (np.arange(CAPACITY) <= slots[:, None])[None, None],
        "write_index": np.array([0]),
        **{f"{kind}_cache.{layer}": cache for kind in ("key", "value") for layer in (0, 1)},
    }
    session = ort.InferenceSession(path, providers=["CPUExecutionProvider"])
    (logits,) = session.run(["logits"], {**feeds, **more})
    rows: NDArray[np.float32] = np.asarray(logits, np.float32)[0]
    return rows
