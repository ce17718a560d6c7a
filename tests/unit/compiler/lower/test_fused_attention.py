"""What the pass leaves in the graph; that it computes the same is shown by `test_engines.py`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import onnx_ir as ir
import pytest

from speccompile.compiler.decoder import LayerKind
from speccompile.compiler.lower.fuse_projections import FUSE_PROJECTIONS
from speccompile.compiler.lower.fused_attention import FUSED_ATTENTION
from speccompile.compiler.lower.passes import run_passes
from speccompile.compiler.rope import plain_rope
from tests.unit.compiler.lower.graphs import CAPACITY, CONFIG, STORAGES, contract, operators, write

CACHES = ["key_cache.0", "value_cache.0", "key_cache.1", "value_cache.1"]


@pytest.mark.parametrize("storage", ["fp32", "fp16", "int8"])
def test_attention_takes_packed_rows(tmp_path: Path, storage: str) -> None:
    write(tmp_path, STORAGES[storage])
    model = contract(tmp_path)
    counts = run_passes(model, [FUSE_PROJECTIONS, FUSED_ATTENTION])
    assert counts == {"fuse_projections": 4, "fused_attention": 2}
    found = operators(model)
    assert (found["CachedAttention"], found["Split"]) == (2, 2)  # gate and up's
    assert not found.keys() & {"Attention", "TensorScatter", "RotaryEmbedding", "Reshape"}
    names = ["input_ids", "position_ids", "past_lens", "ancestors", *CACHES]
    assert [value.name for value in model.graph.inputs] == names
    outputs = ["logits", *(f"new_{name}" for name in CACHES)]
    assert [value.name for value in model.graph.outputs] == outputs
    node = _attentions(model)[0]
    assert node.inputs[1:3] == (None, None)
    counts = {name: node.attributes[name].as_int() for name in ("heads", "kv_heads")}
    assert counts == {"heads": 4, "kv_heads": 2}


def test_unfused_projections_are_read_apart(tmp_path: Path) -> None:
    write(tmp_path, STORAGES["fp32"])
    model = contract(tmp_path)
    run_passes(model, [FUSED_ATTENTION])
    names = [value.name if value else "" for value in _attentions(model)[1].inputs[:3]]
    assert names == [f"/model/layers.1/self_attn/{kind}_proj/bias" for kind in "qkv"]


@pytest.mark.parametrize("kind", ["head", "all_heads"])
def test_norms_stand_before_the_attention(
    tmp_path: Path, kind: Literal["head", "all_heads"]
) -> None:
    config = replace(CONFIG, query_key_norm=kind)
    write(tmp_path, STORAGES["fp32"], config)
    model = contract(tmp_path, config)
    run_passes(model, [FUSE_PROJECTIONS, FUSED_ATTENTION])
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
    run_passes(model, [FUSE_PROJECTIONS, FUSED_ATTENTION])
    sliding, unrotated = _attentions(model)
    assert [node.attributes["window"].as_int() for node in (sliding, unrotated)] == [8, 0]
    tables = [each.name for each in sliding.inputs[8:] if each]
    assert tables == ["rope.0.cos", "rope.0.sin"]
    assert not any(unrotated.inputs[8:])
    for node in (sliding, unrotated):
        assert node.attributes["scale"].as_float() == 0.5
        assert node.attributes["softcap"].as_float() == 20.0


def test_the_operator_turns_a_part_of_a_heads_channels(tmp_path: Path) -> None:
    kind = LayerKind(plain_rope(10_000.0, 24))
    config = replace(CONFIG, heads=2, kv_heads=1, head_dim=32, kinds=(kind,))
    write(tmp_path, STORAGES["fp32"], config)
    model = contract(tmp_path, config)
    run_passes(model, [FUSE_PROJECTIONS, FUSED_ATTENTION])
    assert "RotaryEmbedding" not in operators(model)
    tables = [node.inputs[8] for node in _attentions(model)]
    assert [each.shape for each in tables if each] == [(CAPACITY, 12)] * 2


def test_positions_are_an_input_where_nothing_is_turned(tmp_path: Path) -> None:
    config = replace(CONFIG, kinds=(LayerKind(None),))
    write(tmp_path, STORAGES["fp32"], config)
    model = contract(tmp_path, config)
    assert "position_ids" not in {value.name for value in model.graph.inputs}
    run_passes(model, [FUSE_PROJECTIONS, FUSED_ATTENTION])
    names = ["input_ids", "position_ids", "past_lens", "ancestors"]
    assert [value.name for value in model.graph.inputs][:4] == names


def _attentions(model: ir.Model) -> list[ir.Node]:
    return [node for node in model.graph if node.op_type == "CachedAttention"]
