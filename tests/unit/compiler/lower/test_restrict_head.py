"""A head of some tokens computes the very columns that the whole head has for them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from speccompile.compiler.lower.backends import lowering
from speccompile.compiler.lower.linear import dimensions, linears
from speccompile.compiler.lower.passes import LoweringError, run_passes
from speccompile.compiler.lower.restrict_head import restrict_head
from tests.unit.compiler.lower.graphs import CONFIG, STORAGES, contract, logits, write

IDS = np.array([0, 3, 4, 17, 30, 39], np.int32)
UNTIED = replace(CONFIG, tied_embeddings=False)
CAPPED = replace(UNTIED, logit_scale=0.5, logit_softcap=3.0)


@pytest.mark.parametrize("config", [CONFIG, UNTIED, CAPPED], ids=["tied", "untied", "capped"])
@pytest.mark.parametrize("storage", STORAGES)
def test_the_columns_are_those_of_all(tmp_path: Path, storage: str, config: object) -> None:
    assert isinstance(config, type(CONFIG))
    write(tmp_path, STORAGES[storage], config)
    model = contract(tmp_path, config)
    expected = logits(model, tmp_path)
    apart = "outliers" in storage and not config.tied_embeddings
    assert run_passes(model, [restrict_head(IDS)]) == {"restrict_head": 1 + apart}
    assert str(model.graph.outputs[0].shape) == f"[B,N,{len(IDS)}]"
    found = logits(model, tmp_path)
    assert found.shape == (len(expected), len(IDS))
    np.testing.assert_allclose(found, expected[:, IDS], rtol=0, atol=1e-5 * np.abs(expected).max())


def test_a_tied_embedding_stays_whole_and_an_own_head_goes(tmp_path: Path) -> None:
    for config, stored in ((CONFIG, "model.embed_tokens.weight"), (UNTIED, "lm_head.weight")):
        folder = tmp_path / stored
        folder.mkdir()
        write(folder, STORAGES["int8"], config)
        model = contract(folder, config)
        run_passes(model, [restrict_head(IDS)])
        (head,) = (each for each in linears(model.graph) if each.product.node.name == _HEAD)
        assert dimensions(head.matrix.weight) == (len(IDS), config.hidden_size)
        assert head.matrix.scale is not None
        assert dimensions(head.matrix.scale) == (len(IDS),)
        kept = model.graph.initializers
        assert dimensions(kept["model.embed_tokens.weight"]) == (40, config.hidden_size)
        assert "lm_head.weight" not in kept


def test_a_bias_has_the_same_rows(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["fp32"], UNTIED)
    model = contract(tmp_path, UNTIED)
    product = next(node for node in model.graph if node.name == _HEAD)
    bias = ir.Value(
        name="lm_head.bias",
        type=ir.TensorType(ir.DataType.FLOAT),
        shape=ir.Shape([40]),
        const_value=ir.tensor(np.arange(40, dtype=np.float32) * 10),
    )
    model.graph.register_initializer(bias)
    node = ir.Node("", "Add", [product.outputs[0], bias], name="/lm_head/bias")
    product.outputs[0].replace_all_uses_with(node.outputs[0])
    node.replace_input_with(0, product.outputs[0])
    model.graph.insert_after(product, node)
    expected = logits(model, tmp_path)
    run_passes(model, [restrict_head(IDS)])
    np.testing.assert_allclose(logits(model, tmp_path), expected[:, IDS], rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("backend", ["openvino", "onnxruntime"])
def test_it_comes_first_and_only_where_it_is_wanted(backend: str) -> None:
    whole = [entry.name for entry in lowering(backend)]
    assert [entry.name for entry in lowering(backend, IDS)] == ["restrict_head", *whole]


def test_what_cannot_be_restricted_is_refused(tmp_path: Path) -> None:
    empty = ir.Model(ir.Graph([], [], nodes=[]), ir_version=11)
    with pytest.raises(LoweringError, match="no /lm_head"):
        run_passes(empty, [restrict_head(IDS)])
    write(tmp_path, STORAGES["fp32"])
    with pytest.raises(LoweringError, match="no token 40"):
        run_passes(contract(tmp_path), [restrict_head(np.array([1, 40], np.int32))])


_HEAD = "/lm_head/MatMul"
