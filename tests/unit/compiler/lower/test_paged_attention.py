"""What the pass leaves in the graph; that it computes the same is shown by `test_engines.py`."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from speccompile.compiler.decoder import LayerKind
from speccompile.compiler.lower.paged_attention import PAGED_ATTENTION
from speccompile.compiler.lower.passes import LoweringError, run_passes
from tests.unit.compiler.lower.graphs import CONFIG, STORAGES, contract, operators, write


@pytest.mark.parametrize("storage", ["fp32", "fp16", "int8"])
def test_pages_replace_caches_and_mask(tmp_path: Path, storage: str) -> None:
    write(tmp_path, STORAGES[storage])
    model = contract(tmp_path)
    before = operators(model)
    assert run_passes(model, [PAGED_ATTENTION]) == {"paged_attention": 2}
    assert before - operators(model) == Counter({"Attention": 2, "TensorScatter": 4})
    assert operators(model) - before == Counter({"PagedAttention": 2})
    assert [value.name for value in model.graph.inputs] == [
        "input_ids",
        "position_ids",
        "past_lens",
        "subsequence_begins",
        "block_indices",
        "block_indices_begins",
        "max_context_len",
        "qq_bias",
        "qq_bias_begins",
        "key_cache.0",
        "value_cache.0",
        "key_cache.1",
        "value_cache.1",
    ]
    assert [value.name for value in model.graph.outputs] == ["logits"]


def test_each_layer_has_its_window_and_scale(tmp_path: Path) -> None:
    rope = CONFIG.kinds[0].rope
    kinds = LayerKind(rope, window=8), LayerKind(None)
    config = replace(CONFIG, kinds=kinds, layer_kinds=(0, 1), attention_scale=0.5)
    write(tmp_path, STORAGES["fp32"], config)
    model = contract(tmp_path, config)
    run_passes(model, [PAGED_ATTENTION])
    nodes = [node for node in model.graph if node.op_type == "PagedAttention"]
    assert [node.attributes["window"].as_int() for node in nodes] == [8, 0]
    for node in nodes:
        names = ("heads", "kv_heads", "head_dim")
        assert [node.attributes[name].as_int() for name in names] == [4, 2, 16]
        assert node.attributes["scale"].as_float() == 0.5


def test_positions_go_where_nothing_needs_them(tmp_path: Path) -> None:
    config = replace(CONFIG, kinds=(LayerKind(None),))
    write(tmp_path, STORAGES["fp32"], config)
    model = contract(tmp_path, config)
    run_passes(model, [PAGED_ATTENTION])
    assert "position_ids" not in {value.name for value in model.graph.inputs}


def test_a_softcap_is_refused(tmp_path: Path) -> None:
    config = replace(CONFIG, attention_softcap=20.0)
    write(tmp_path, STORAGES["fp32"], config)
    with pytest.raises(LoweringError, match="paged_attention left Attention, TensorScatter behind"):
        run_passes(contract(tmp_path, config), [PAGED_ATTENTION])
