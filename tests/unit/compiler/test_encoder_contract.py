"""The contract of an encoder and its decoder, against transformers."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from transformers.models.t5.modeling_t5 import T5Attention

from speccompile.compiler.contract import build_contract, build_encoder
from speccompile.compiler.decoder import PositionBias
from speccompile.compiler.position_bias import position_buckets
from speccompile.compiler.quantize import write_weights
from speccompile.compiler.reference import ContractEngine, read_source
from speccompile.compiler.weights import Weights
from tests.contract_run import relative_error
from tests.t5_models import T5_KINDS, tiny_t5

TOLERANCE = 1e-4  # relative; measured: 2e-6
CAPACITY = 64


@pytest.mark.parametrize("buckets", [8, 32, 33])
@pytest.mark.parametrize("most", [20, 64, 128, 200])
def test_buckets_are_those_of_transformers(buckets: int, most: int) -> None:
    import torch

    bucket_of: Any = vars(T5Attention)["_relative_position_bucket"].__func__
    places = torch.arange(-most, most + 1)
    for both_ways in (False, True):
        theirs = bucket_of(places, both_ways, buckets, most).numpy()
        ours = position_buckets(PositionBias(buckets, most), both_ways=both_ways)
        np.testing.assert_array_equal(ours, theirs if both_ways else theirs[most::-1])


@pytest.mark.parametrize("kind", T5_KINDS)
@pytest.mark.parametrize("length", [1, 9, 50])
def test_logits_equal_transformers(
    kind: str, length: int, tmp_path: Path, tokens: list[int]
) -> None:
    """Over steps with a cache, and after a roll-back, for sources on both sides of the longest
    distance that has a bucket of its own."""
    model = tiny_t5(kind)
    write_weights(model.config, model.read, "fp32", tmp_path)
    weights = Weights(tmp_path)
    ir.save(build_encoder(model.config, weights), tmp_path / "encoder.onnx")
    ir.save(build_contract(model.config, weights, CAPACITY), tmp_path / "decoder.onnx")
    tokens = [token % 400 for token in tokens]
    source, sequence = tokens[:length], [0, *tokens[30:90]]
    read = read_source(tmp_path / "encoder.onnx", source, threads=1)
    engine = ContractEngine(tmp_path / "decoder.onnx", threads=1, source=read)
    expected = model.logits(source, sequence)
    steps = pairwise([0, 1, 2, 7, 40, len(sequence)])
    rows = np.concatenate([engine.step(sequence[start:end]) for start, end in steps])
    assert relative_error(rows, expected) <= TOLERANCE
    engine.rollback(20)
    engine.step(tokens[:5])  # wrong ones
    engine.rollback(20)
    assert relative_error(engine.step(sequence[20:24]), expected[20:24]) <= TOLERANCE


def test_each_part_of_the_source_counts(tmp_path: Path, tokens: list[int]) -> None:
    """The comparison above would see an encoder that is left out or reads in another order."""
    model = tiny_t5()
    source = [token % 400 for token in tokens[:9]]
    expected = model.logits(source, [0, 5, 6])
    for other in (source[:-1], source[1:], source[::-1]):
        assert relative_error(model.logits(other, [0, 5, 6]), expected) > 10 * TOLERANCE


def test_interface(tmp_path: Path) -> None:
    model = tiny_t5()
    write_weights(model.config, model.read, "int8", tmp_path)
    weights = Weights(tmp_path)
    assert weights["model.layers.0.self_attn.position_bias"].dtype == ir.DataType.FLOAT
    assert weights["model.layers.2.cross_attn.k_proj.weight"].dtype == ir.DataType.INT8
    graphs = {"decoder": build_contract(model.config, weights, CAPACITY)}
    graphs["encoder"] = build_encoder(model.config, weights)
    for name, graph in graphs.items():
        path = tmp_path / f"{name}.onnx"
        ir.save(graph, path)
        onnx.checker.check_model(path, full_check=True)
    source = {f"source_{kind}.{layer}" for kind in ("key", "value") for layer in range(3)}
    assert {value.name for value in graphs["encoder"].graph.inputs} == {"input_ids"}
    assert {value.name for value in graphs["encoder"].graph.outputs} == source
    assert source < {value.name for value in graphs["decoder"].graph.inputs}
    read = set(graphs["decoder"].graph.initializers) & set(weights)
    assert not any("cross_attn.k_proj" in name or "encoder" in name for name in read)
