"""Tiny models, written by the libraries that own their formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from speccompile.compiler.sources.metadata import Metadata
from tests.llama import transformers_llama

CONFIG = DecoderConfig(
    vocab_size=261,
    hidden_size=64,
    intermediate_size=96,
    layers=2,
    heads=4,
    kv_heads=2,
    head_dim=16,
    context_length=128,
    rope_theta=100_000.0,
    rms_norm_eps=1e-5,
    tied_embeddings=False,
)
"""Extents that differ from each other, so that no transposition passes."""


def byte_alphabet() -> list[str]:
    """The 256 characters by which byte-level BPE writes bytes, in the order of the bytes."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


TOKENS = ["<|end|>", "<|start|>", *byte_alphabet(), "he", "\u0120he", "<tool>"]
TOKENIZER: dict[str, object] = {
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "smollm",
    "tokenizer.ggml.tokens": TOKENS,
    "tokenizer.ggml.token_type": [3, 3, *[1] * 258, 4],
    "tokenizer.ggml.merges": ["h e", "\u0120 he"],
    "tokenizer.ggml.bos_token_id": 1,
    "tokenizer.ggml.eos_token_id": 0,
    "tokenizer.chat_template": "{{ messages }}",
}


@pytest.fixture(scope="session")
def config() -> DecoderConfig:
    return CONFIG


@pytest.fixture
def tokenizer_metadata() -> Callable[..., Metadata]:
    """Metadata of a GGUF tokenizer, with the given keys (after ``tokenizer.ggml.``) replaced."""

    def build(**changes: object) -> Metadata:
        keys = {f"tokenizer.ggml.{key}": value for key, value in changes.items()}
        return Metadata("tiny.gguf", TOKENIZER | keys)

    return build


@pytest.fixture(scope="session")
def weights() -> dict[str, NDArray[np.float32]]:
    """Canonical tensors of float32 values that float16 and bfloat16 hold exactly."""
    random = np.random.default_rng(7)
    return {
        name: random.integers(-64, 64, shape).astype(np.float32) / np.float32(32)
        for name, shape in tensor_shapes(CONFIG).items()
    }


@pytest.fixture
def write_gguf(tmp_path: Path, weights: dict[str, NDArray[np.float32]]) -> Callable[..., Path]:
    """Write the tiny model as llama.cpp's converter would, with keys and tensors to change it.

    A changed key or tensor of None is left out.
    """

    def write(
        *,
        architecture: str = "llama",
        keys: dict[str, object] | None = None,
        tensors: dict[str, NDArray[np.float32] | NDArray[np.int32] | None] | None = None,
        encoding: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    ) -> Path:
        path = tmp_path / "tiny.gguf"
        writer = gguf.GGUFWriter(path, architecture)
        for key, value in (_GGUF_KEYS | TOKENIZER | (keys or {})).items():
            _write_key(writer, key, value)
        converted = {
            _name_in_gguf(name): _converted(name, value) for name, value in weights.items()
        }
        for name, value in (converted | (tensors or {})).items():
            if value is not None and (value.ndim == 1 or value.dtype == np.int32):
                writer.add_tensor(name, value)
            elif value is not None:
                stored = gguf.quantize(value, encoding)
                writer.add_tensor(name, stored, raw_dtype=encoding)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


@pytest.fixture
def write_folder(tmp_path: Path, weights: dict[str, NDArray[np.float32]]) -> Callable[..., Path]:
    """Save the tiny model through transformers, with a tokenizer."""

    def write(dtype: torch.dtype = torch.float32, max_shard_size: str = "1GB") -> Path:
        model = transformers_llama(CONFIG)
        model.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
        folder = tmp_path / "tiny"
        torch.nn.Module.to(model, dtype)
        model.save_pretrained(folder, max_shard_size=max_shard_size)
        (folder / "tokenizer.json").write_text(_TOKENIZER_JSON)
        (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "b"}))
        return folder

    return write


_TOKENIZER_JSON = json.dumps(
    {
        "version": "1.0",
        "added_tokens": [],
        "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "c": 2}, "merges": []},
    }
)

_GGUF_KEYS: dict[str, object] = {
    "general.license": "apache-2.0",
    "llama.block_count": CONFIG.layers,
    "llama.context_length": CONFIG.context_length,
    "llama.embedding_length": CONFIG.hidden_size,
    "llama.feed_forward_length": CONFIG.intermediate_size,
    "llama.attention.head_count": CONFIG.heads,
    "llama.attention.head_count_kv": CONFIG.kv_heads,
    "llama.attention.layer_norm_rms_epsilon": CONFIG.rms_norm_eps,
    "llama.rope.freq_base": CONFIG.rope_theta,
    "llama.rope.dimension_count": CONFIG.head_dim,
}


def _write_key(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)


def _name_in_gguf(name: str) -> str:
    """gguf's own table of names, so that the reader's is not tested against itself."""
    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, CONFIG.layers)
    found = table.get_name(name, try_suffixes=(".weight",))
    assert found is not None
    return found


def _converted(name: str, weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """The row order of llama.cpp's convert_hf_to_gguf.py (LlamaModel.permute)."""
    if not name.endswith(("q_proj.weight", "k_proj.weight")):
        return weight
    heads = CONFIG.heads if name.endswith("q_proj.weight") else CONFIG.kv_heads
    rows, columns = weight.shape
    return (
        weight.reshape(heads, 2, rows // heads // 2, columns).swapaxes(1, 2).reshape(rows, columns)
    )
