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
        found = checkpoint.tensor(name)
        assert found.dtype == np.float32
        assert found.flags.writeable
        assert found.flags.c_contiguous
        np.testing.assert_array_equal(found, expected, err_msg=name)


def test_quantized_tensors_are_dequantized(write_gguf: WriteGGUF, weights: Weights) -> None:
    q8 = gguf.GGMLQuantizationType.Q8_0
    checkpoint = open_file(write_gguf(encoding=q8))
    for name in ("model.layers.1.self_attn.k_proj.weight", "model.layers.0.mlp.down_proj.weight"):
        expected = gguf.dequantize(gguf.quantize(weights[name], q8), q8)
        np.testing.assert_array_equal(checkpoint.tensor(name), expected)


def test_writing_to_a_tensor_leaves_the_file(write_gguf: WriteGGUF) -> None:
    path = write_gguf()
    before = path.read_bytes()
    open_file(path).tensor("lm_head.weight")[:] = 0
    assert path.read_bytes() == before


def test_config(write_gguf: WriteGGUF, config: DecoderConfig) -> None:
    assert open_file(write_gguf()).config == config


def test_config_without_optional_keys(write_gguf: WriteGGUF, config: DecoderConfig) -> None:
    keys = {"llama.rope.dimension_count": None, "llama.rope.freq_base": None}
    found = open_file(write_gguf(keys=keys)).config
    assert found.head_dim == config.head_dim
    assert found.rope_theta == 10_000.0


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


@pytest.mark.parametrize("contents", [b"", b"GGUF", b"PK\x03\x04 something else", b"cut"])
def test_unreadable_file(write_gguf: WriteGGUF, contents: bytes) -> None:
    path = write_gguf()
    path.write_bytes(path.read_bytes()[:5000] if contents == b"cut" else contents)
    with pytest.raises(SourceError, match=r"tiny\.gguf: not readable as GGUF"):
        open_file(path)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"llama.rope.scaling.type": "yarn"}, "scaling.type yarn is not supported"),
        ({"llama.expert_count": 8}, "mixture of 8 experts"),
        ({"llama.rope.dimension_count": 8, "llama.attention.key_length": 16}, "8 rotated"),
        ({"llama.attention.value_length": 8}, "8 values"),
        ({"llama.attention.head_count_kv": [2, 1]}, "head_count_kv must be of type int"),
        ({"llama.block_count": None}, "block_count is missing"),
        ({"llama.block_count": 0}, "block_count must be at least 1"),
    ],
)
def test_unsupported_keys_are_refused_by_name(
    write_gguf: WriteGGUF, keys: dict[str, object], message: str
) -> None:
    with pytest.raises(SourceError, match=message):
        open_file(write_gguf(keys=keys))


def test_other_architecture(write_gguf: WriteGGUF) -> None:
    with pytest.raises(
        SourceError, match=r"architecture gemma3 is not supported; supported: llama"
    ):
        open_file(write_gguf(architecture="gemma3"))


@pytest.mark.parametrize("name", ["rope_freqs.weight", "blk.0.attn_q.bias"])
def test_tensor_that_would_be_ignored(write_gguf: WriteGGUF, name: str) -> None:
    with pytest.raises(SourceError, match=name):
        open_file(write_gguf(tensors={name: np.ones(8, np.float32)}))


def test_missing_tensor(write_gguf: WriteGGUF) -> None:
    checkpoint = open_file(write_gguf(tensors={"blk.1.ffn_up.weight": None}))
    with pytest.raises(SourceError, match=r"tiny\.gguf: has no tensor model.layers.1.mlp.up_proj"):
        checkpoint.tensor("model.layers.1.mlp.up_proj.weight")


def test_missing_embedding(write_gguf: WriteGGUF) -> None:
    with pytest.raises(SourceError, match=r"has no tensor token_embd\.weight"):
        open_file(write_gguf(tensors={"token_embd.weight": None}))


def test_tensor_of_another_shape(write_gguf: WriteGGUF) -> None:
    wrong = np.zeros((4, 64), np.float32)
    checkpoint = open_file(write_gguf(tensors={"blk.0.attn_k.weight": wrong}))
    with pytest.raises(SourceError, match=r"k_proj.weight has shape \[4, 64\].*\[32, 64\]"):
        checkpoint.tensor("model.layers.0.self_attn.k_proj.weight")


def test_encoding_without_dequantization(write_gguf: WriteGGUF) -> None:
    integers = np.ones((261, 64), np.int32)
    checkpoint = open_file(write_gguf(tensors={"output.weight": integers}))
    with pytest.raises(SourceError, match=r"lm_head.weight is stored as I32"):
        checkpoint.tensor("lm_head.weight")
