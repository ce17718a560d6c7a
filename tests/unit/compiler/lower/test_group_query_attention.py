"""What the pass leaves in the graph; that it computes the same is shown by `test_engines.py`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import onnx_ir as ir
import pytest

from speccompile.compiler.decoder import DecoderConfig, LayerKind
from speccompile.compiler.lower.fuse_projections import FUSE_PROJECTIONS
from speccompile.compiler.lower.group_query_attention import GROUP_QUERY_ATTENTION
from speccompile.compiler.lower.passes import run_passes
from speccompile.compiler.rope import plain_rope
from tests.unit.compiler.lower.graphs import CONFIG, STORAGES, contract, operators, write

CACHES = ["key_cache.0", "value_cache.0", "key_cache.1", "value_cache.1"]


@pytest.mark.parametrize("storage", ["fp32", "fp16", "int8"])
def test_attention_takes_packed_rows(tmp_path: Path, storage: str) -> None:
    write(tmp_path, STORAGES[storage])
    model = contract(tmp_path)
    counts = run_passes(model, [FUSE_PROJECTIONS, GROUP_QUERY_ATTENTION])
    assert counts == {"fuse_projections": 4, "group_query_attention": 2}
    found = operators(model)
    assert (found["GroupQueryAttention"], found["Split"]) == (2, 2)  # gate and up's
    assert not found.keys() & {"Attention", "TensorScatter", "RotaryEmbedding", "Reshape"}
    lengths = ["seqlens_k", "total_sequence_length"]
    names = ["input_ids", "position_ids", "attention_bias", *lengths, *CACHES]
    assert [value.name for value in model.graph.inputs] == names
    outputs = ["logits", *(f"new_{name}" for name in CACHES)]
    assert [value.name for value in model.graph.outputs] == outputs
    node = _attentions(model)[0]
    assert node.inputs[1:3] == (None, None)
    counts = {name: node.attributes[name].as_int() for name in ("num_heads", "kv_num_heads")}
    assert counts == {"num_heads": 4, "kv_num_heads": 2}


def test_unfused_projections_are_read_apart(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["fp32"])
    model = contract(tmp_path)
    run_passes(model, [GROUP_QUERY_ATTENTION])
    names = [value.name if value else "" for value in _attentions(model)[1].inputs[:3]]
    assert names == [f"/model/layers.1/self_attn/{kind}_proj/bias" for kind in "qkv"]


@pytest.mark.parametrize("kind", ["head", "all_heads"])
def test_norms_stand_before_the_attention(
    tmp_path: Path, kind: Literal["head", "all_heads"]
) -> None:
    config = replace(CONFIG, query_key_norm=kind)
    write(tmp_path, STORAGES["fp32"], config)
    model = contract(tmp_path, config)
    run_passes(model, [FUSE_PROJECTIONS, GROUP_QUERY_ATTENTION])
    assert operators(model)["RMSNormalization"] == 5 + 4
    assert "RotaryEmbedding" not in operators(model)
    assert all(node.inputs[1] is not None for node in _attentions(model))


def test_each_layer_has_its_window_rotation_scale_and_softcap(tmp_path: Path) -> None:
    rope = plain_rope(10_000.0, 16)
    kinds = LayerKind(rope, window=8), LayerKind(None)
    config = replace(
        CONFIG, kinds=kinds, layer_kinds=(0, 1), attention_scale=0.5, attention_softcap=20.0
    )
    write(tmp_path, STORAGES["fp32"], config)
    model = contract(tmp_path, config)
    run_passes(model, [FUSE_PROJECTIONS, GROUP_QUERY_ATTENTION])
    sliding, unrotated = _attentions(model)
    assert _rotation_and_bias(sliding) == (1, "position_ids", "sliding_bias")
    assert _rotation_and_bias(unrotated) == (0, None, "attention_bias")
    inputs = [value.name for value in model.graph.inputs]
    assert inputs[1:4] == ["position_ids", "attention_bias", "sliding_bias"]
    widths = [node.attributes["local_window_size"].as_int() for node in (sliding, unrotated)]
    assert widths == [8 + 128, -1]  # slots of a tree of 128 rows, each at the window's end
    for node in (sliding, unrotated):
        assert node.attributes["scale"].as_float() == 0.5
        assert node.attributes["softcap"].as_float() == 20.0


@pytest.mark.parametrize(("channels", "inside"), [(16, True), (24, False)])
def test_a_rotation_that_the_operator_refuses_stays_outside(
    tmp_path: Path, channels: int, inside: bool
) -> None:
    config = _partly_rotated(channels)
    write(tmp_path, STORAGES["fp32"], config)
    model = contract(tmp_path, config)
    run_passes(model, [FUSE_PROJECTIONS, GROUP_QUERY_ATTENTION])
    assert operators(model)["RotaryEmbedding"] == (0 if inside else 4)
    expected = (int(inside), "position_ids" if inside else None, "attention_bias")
    assert [_rotation_and_bias(node) for node in _attentions(model)] == [expected] * 2
    assert "position_ids" in {value.name for value in model.graph.inputs}


@pytest.mark.parametrize("window", [None, 8])
def test_a_bias_that_no_layer_takes_is_no_input(tmp_path: Path, window: int | None) -> None:
    config = replace(CONFIG, kinds=(LayerKind(plain_rope(10_000.0, 16), window=window),))
    write(tmp_path, STORAGES["fp32"], config)
    model = contract(tmp_path, config)
    run_passes(model, [FUSE_PROJECTIONS, GROUP_QUERY_ATTENTION])
    biases = {str(value.name) for value in model.graph.inputs if "bias" in str(value.name)}
    assert biases == {"sliding_bias" if window else "attention_bias"}


def _partly_rotated(channels: int) -> DecoderConfig:
    kind = LayerKind(plain_rope(10_000.0, channels))
    return replace(CONFIG, heads=2, kv_heads=1, head_dim=32, kinds=(kind,))


def _rotation_and_bias(node: ir.Node) -> tuple[int, str | None, str | None]:
    """Whether the operator rotates, by which positions, and what is added to its scores."""
    positions, bias = node.inputs[9:11]
    return (
        node.attributes["do_rotary"].as_int(),
        positions.name if positions else None,
        bias.name if bias else None,
    )


def _attentions(model: ir.Model) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type == "GroupQueryAttention"]
