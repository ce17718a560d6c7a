"""A GGUF file as a checkpoint; every family and encoding is in test_gguf_families.py."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
from numpy.typing import NDArray

from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.gguf import GGUFCheckpoint
from tests.families import tiny
from tests.gguf_files import write_gguf as write_file

Weights = dict[str, NDArray[np.float32]]
WriteGGUF = Callable[..., Path]


def open_file(path: Path) -> GGUFCheckpoint:
    return GGUFCheckpoint(path, source=str(path))


@pytest.mark.parametrize("encoding", ["F32", "F16", "BF16"])
def test_tensors_are_those_before_conversion(
    write_gguf: WriteGGUF, weights: Weights, encoding: str
) -> None:
    checkpoint = open_file(write_gguf(encoding=gguf.GGMLQuantizationType[encoding]))
    for name, expected in weights.items():
        np.testing.assert_array_equal(checkpoint.tensor(name), expected, err_msg=name)


def test_writing_to_a_tensor_leaves_the_file(write_gguf: WriteGGUF) -> None:
    path = write_gguf()
    before = path.read_bytes()
    open_file(path).tensor("lm_head.weight")[:] = 0
    assert path.read_bytes() == before


def test_config_without_optional_keys(write_gguf: WriteGGUF, config: DecoderConfig) -> None:
    keys = {"rope.dimension_count", "rope.freq_base", "attention.key_length"}
    found = open_file(write_gguf(keys={f"llama.{key}": None for key in keys})).config
    assert found == config


def test_absent_key_value_heads_are_as_many_as_heads(write_gguf: WriteGGUF) -> None:
    path = write_gguf(keys={"llama.attention.head_count_kv": None})
    assert open_file(path).config.kv_heads == 4


def test_embeddings_are_tied_without_an_output_tensor(write_gguf: WriteGGUF) -> None:
    checkpoint = open_file(write_gguf(tensors={"output.weight": None}))
    assert checkpoint.config.tied_embeddings
    assert "lm_head.weight" not in tensor_shapes(checkpoint.config)


def test_provenance(write_gguf: WriteGGUF) -> None:
    path = write_gguf()
    provenance = GGUFCheckpoint(path, source="here").provenance
    assert provenance.source == "here"
    assert provenance.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()
    assert provenance.license == "apache-2.0"


def test_wrong_sha256_is_refused_before_parsing(tmp_path: Path) -> None:
    path = tmp_path / "x.gguf"
    path.write_bytes(b"anything")
    with pytest.raises(SourceError, match=r"have sha256 [0-9a-f]{64}, but 0{64} is expected"):
        GGUFCheckpoint(path, source="x", sha256="0" * 64)


@pytest.mark.parametrize("scaling", [{"rope.scaling.factor": 4.0}, {"rope.scale_linear": 4.0}])
def test_scaling_is_linear_where_its_type_is_left_out(
    write_gguf: WriteGGUF, config: DecoderConfig, scaling: dict[str, float]
) -> None:
    path = write_gguf(keys={f"llama.{key}": value for key, value in scaling.items()})
    found, plain = open_file(path).config.kind(0).rope, config.kind(0).rope
    assert found
    assert plain
    assert found.frequencies == tuple(value / 4 for value in plain.frequencies)


def test_scaling_of_type_none_is_none(write_gguf: WriteGGUF, config: DecoderConfig) -> None:
    keys = {"llama.rope.scaling.type": "none", "llama.rope.scaling.factor": 4.0}
    assert open_file(write_gguf(keys=keys)).config == config


@pytest.mark.parametrize(
    ("architecture", "layers", "scale"),
    [("gemma2", 26, 32), ("gemma2", 46, 16), ("gemma3", 34, 32), ("gemma3", 62, 16)],
)
def test_the_attention_scale_of_gemma_is_told_from_its_layers(
    tmp_path: Path, architecture: str, layers: int, scale: int
) -> None:
    keys = {f"{architecture}.block_count": layers}
    config = open_file(write_file(tiny(architecture), tmp_path / "x.gguf", keys=keys)).config
    assert config.attention_scale == scale**-0.5


def test_the_period_of_sliding_layers_may_be_stated(tmp_path: Path) -> None:
    keys = {"gemma3.attention.sliding_window_pattern": 3}
    config = open_file(write_file(tiny("gemma3"), tmp_path / "x.gguf", keys=keys)).config
    windows = [config.kind(layer).window for layer in range(6)]
    assert windows == [24, 24, None, 24, 24, None]


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"general.type": "adapter"}, r"general\.type adapter .* supported: model"),
        ({"split.count": 3}, r"one of 3 parts; join them"),
        ({"llama.rope.scaling.type": "su"}, r"rope_type su|short_factor is missing"),
        ({"llama.rope.scaling.type": "ntk"}, r"rope_type ntk is not supported; supported: default"),
        ({"llama.rope.scaling.yarn_log_multiplier": 0.1}, r"yarn_log_multiplier is not supported"),
        ({"llama.rope.scaling.finetuned": False}, r"rope\.scaling\.finetuned False"),
        ({"llama.attention.causal": False}, r"attention\.causal False"),
        ({"llama.attention.sliding_window": 9}, r"llama: attention\.sliding_window"),
        ({"llama.logit_scale": 2.0}, r"llama: logit_scale is not supported"),
        ({"llama.expert_count": 8}, r"mixture of 8 experts"),
        ({"llama.rope.dimension_count": 8, "llama.attention.key_length": 16}, r"8 rotated"),
        ({"llama.attention.value_length": 8}, r"8 values"),
        ({"llama.attention.head_count_kv": [2, 1]}, r"num_key_value_heads must be of type int"),
        ({"llama.feed_forward_length": [96, 96]}, r"feed_forward_length must be of type int"),
        ({"llama.block_count": None}, r"block_count is missing"),
        ({"llama.block_count": 0}, r"block_count must be at least 1"),
    ],
)
def test_unsupported_keys_are_refused_by_name(
    write_gguf: WriteGGUF, keys: dict[str, object], message: str
) -> None:
    with pytest.raises(SourceError, match=rf"^.*tiny\.gguf: [^\n]*{message}[^\n]*$"):
        open_file(write_gguf(keys=keys))


@pytest.mark.parametrize("name", ["qwen3moe", "mamba", "deepseek2", "gemma3n"])
def test_other_architectures(write_gguf: WriteGGUF, name: str) -> None:
    message = (
        rf"architecture {name} \(a .*\) is not supported; supported: "
        "gemma2, gemma3, gpt2, granite, llama, olmo2, phi3, qwen2, qwen3, smollm3"
    )
    with pytest.raises(SourceError, match=message):
        open_file(write_gguf(keys={"general.architecture": name}))


@pytest.mark.parametrize("name", ["blk.0.attn_q_norm.weight", "blk.7.attn_q.weight", "v.patch"])
def test_tensor_that_would_be_ignored(write_gguf: WriteGGUF, name: str) -> None:
    with pytest.raises(SourceError, match=rf"tensor {name} has no place in the llama architect"):
        open_file(write_gguf(tensors={name: np.ones(8, np.float32)}))


def test_biases_without_all_of_them(write_gguf: WriteGGUF) -> None:
    checkpoint = open_file(write_gguf(tensors={"blk.0.attn_q.bias": np.ones(64, np.float32)}))
    with pytest.raises(SourceError, match=r"no tensor model\.layers\.1\.self_attn\.q_proj\.bias"):
        checkpoint.tensor("model.layers.1.self_attn.q_proj.bias")


def test_rope_scaled_in_two_ways(write_gguf: WriteGGUF) -> None:
    keys = {"llama.rope.scaling.type": "yarn", "llama.rope.scaling.factor": 2.0}
    factors = {"rope_freqs.weight": np.ones(8, np.float32)}
    with pytest.raises(SourceError, match=r"rope\.scaling\.type yarn .*rope_freqs\.weight scales"):
        open_file(write_gguf(keys=keys, tensors=factors))


def test_rope_scaled_for_heads_of_another_size(write_gguf: WriteGGUF) -> None:
    factors = {"rope_freqs.weight": np.ones(4, np.float32)}
    with pytest.raises(SourceError, match=r"short_factor of length 4 .* supported: 8 factors"):
        open_file(write_gguf(tensors=factors))


def test_missing_tensor(write_gguf: WriteGGUF) -> None:
    checkpoint = open_file(write_gguf(tensors={"blk.1.ffn_up.weight": None}))
    with pytest.raises(SourceError, match=r"tiny\.gguf: has no tensor model.layers.1.mlp.up_proj"):
        checkpoint.tensor("model.layers.1.mlp.up_proj.weight")


def test_a_tensor_that_the_model_does_not_have(write_gguf: WriteGGUF) -> None:
    with pytest.raises(SourceError, match=r"has no tensor model\.layers\.2\.mlp\.up_proj\.weight"):
        open_file(write_gguf()).tensor("model.layers.2.mlp.up_proj.weight")


def test_missing_embedding(write_gguf: WriteGGUF) -> None:
    with pytest.raises(SourceError, match=r"has no tensor token_embd\.weight"):
        open_file(write_gguf(tensors={"token_embd.weight": None}))


@pytest.mark.parametrize("rows", [3, 4])
def test_tensor_of_another_shape(write_gguf: WriteGGUF, rows: int) -> None:
    wrong = np.zeros((rows, 64), np.float32)
    checkpoint = open_file(write_gguf(tensors={"blk.0.attn_k.weight": wrong}))
    with pytest.raises(SourceError, match=rf"k_proj.weight has shape \[{rows}, 64\].*\[32, 64\]"):
        checkpoint.tensor("model.layers.0.self_attn.k_proj.weight")


@pytest.mark.parametrize("rows", [100, 160])
def test_fused_tensor_of_another_shape(tmp_path: Path, rows: int) -> None:
    wrong = np.zeros((rows, 64), np.float32)
    tensors = {"blk.0.attn_qkv.weight": wrong}
    with pytest.raises(SourceError, match=rf"attn_qkv.weight has {rows} rows, but .* 128"):
        open_file(write_file(tiny("phi3"), tmp_path / "x.gguf", tensors=tensors))


def test_encoding_without_dequantization(write_gguf: WriteGGUF) -> None:
    integers = np.ones((512, 64), np.int32)
    checkpoint = open_file(write_gguf(tensors={"output.weight": integers}))
    with pytest.raises(SourceError, match=r"lm_head.weight is stored as I32"):
        checkpoint.tensor("lm_head.weight")
