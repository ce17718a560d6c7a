from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from speccompile.compiler.lower.int8_for_tensorrt import INT8_TABLES, UNROUNDED_INPUTS
from speccompile.compiler.lower.passes import LoweringError, run_passes
from tests.unit.compiler.lower.graphs import (
    CONFIG,
    STORAGES,
    contract,
    logits,
    operators,
    stored_bytes,
    write,
)


@pytest.mark.parametrize("learned", [None, 32], ids=["rotated", "learned"])
@pytest.mark.parametrize("tied", [True, False])
def test_tables_are_gathered_dequantized(tmp_path: Path, tied: bool, learned: int | None) -> None:
    config = replace(CONFIG, tied_embeddings=tied, learned_positions=learned)
    write(tmp_path, STORAGES["int8"], config)
    expected = logits(contract(tmp_path, config), tmp_path)
    model = contract(tmp_path, config)
    stored = stored_bytes(model)
    tables = 2 if learned else 1
    assert run_passes(model, [INT8_TABLES]) == {"int8_tables": tables}
    # TensorRT takes a stored int8 matrix nowhere but in front of its dequantization.
    for value in model.graph.initializers.values():
        if value.dtype == ir.DataType.INT8 and value.const_value and value.const_value.size > 1:
            assert {node.op_type for node in value.consumers()} == {"DequantizeLinear"}
    assert stored_bytes(model) == stored
    found = logits(model, tmp_path)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


@pytest.mark.parametrize("storage", ["fp16", "fp32"])
def test_other_tables_are_left_alone(tmp_path: Path, storage: str) -> None:
    write(tmp_path, STORAGES[storage])
    assert run_passes(contract(tmp_path), [INT8_TABLES]) == {"int8_tables": 0}


def test_a_table_without_its_scales_is_refused(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["int8"])
    model = contract(tmp_path)
    (product,) = (node for node in model.graph if node.name == "/model/embed_tokens/Mul")
    product.replace_input_with(1, model.graph.initializers["model.norm.weight"])
    with pytest.raises(LoweringError, match=r"\A/model/embed_tokens/Gather: its scales"):
        run_passes(model, [INT8_TABLES])


@pytest.mark.parametrize(("static", "plain"), [("static", "int8"), ("static-outliers", "outliers")])
def test_inputs_without_rounding_are_those_of_a_contract_without(
    tmp_path: Path, static: str, plain: str
) -> None:
    write(tmp_path, STORAGES[plain])
    expected = logits(contract(tmp_path), tmp_path)
    write(tmp_path, STORAGES[static])
    model = contract(tmp_path)
    rounded = operators(model)["QuantizeLinear"]
    assert run_passes(model, [UNROUNDED_INPUTS]) == {"unrounded_inputs": rounded}
    assert rounded
    np.testing.assert_array_equal(logits(model, tmp_path), expected)
