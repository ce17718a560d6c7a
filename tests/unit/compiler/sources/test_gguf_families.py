"""GGUF files of every family, in every encoding: the same model as before the conversion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf import GGMLQuantizationType as Encoding
from numpy.typing import NDArray
from transformers import modeling_gguf_pytorch_utils

from speccompile.compiler.decoder import tensor_shapes
from speccompile.compiler.sources.gguf import GGUFCheckpoint
from tests.families import TINY, Tiny, tiny
from tests.gguf_files import write_gguf

# Of these the converter leaves out the window, which llama.cpp does not implement for them.
_WITHOUT_WINDOW = ("mistral-sliding", "qwen2-sliding")
# Those that transformers reads, as far as it does: it takes no scaled RoPE from a file.
_READ_BY_TRANSFORMERS = (
    "llama",
    "llama-tied",
    "qwen2",
    "qwen3",
    "gemma2",
    "gemma3",
    "phi3",
    "gpt2",
)
_QUANTIZING = ("F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "TQ1_0", "TQ2_0", "MXFP4")
_DEQUANTIZING = (
    *("Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ1_S", "IQ1_M", "IQ2_XXS", "IQ2_XS", "IQ2_S"),
    *("IQ3_XXS", "IQ3_S", "IQ4_NL", "IQ4_XS", "NVFP4"),
)


def open_file(path: Path) -> GGUFCheckpoint:
    return GGUFCheckpoint(path, source=str(path))


@cache
def model_of(name: str) -> Tiny:
    # A file has no such number: it is the head size, but in the 27B models.
    settings = {"query_pre_attn_scalar": 32} if name.startswith("gemma") else {}
    return tiny(name, **settings)


@pytest.mark.parametrize("name", TINY)
def test_a_file_is_the_model_it_was_made_of(name: str, tmp_path: Path) -> None:
    model = model_of(name)
    checkpoint = open_file(write_gguf(model, tmp_path / "tiny.gguf"))
    config, expected = checkpoint.config, model.config
    for layer in range(expected.layers):
        ours, theirs = config.kind(layer), expected.kind(layer)
        assert ours.window == (None if name in _WITHOUT_WINDOW else theirs.window)
        assert (ours.rope is None) == (theirs.rope is None)
        if ours.rope and theirs.rope:
            np.testing.assert_allclose(ours.rope.frequencies, theirs.rope.frequencies, rtol=3e-7)
            assert ours.rope.attention_factor == pytest.approx(theirs.rope.attention_factor)
    assert replace(config, kinds=(), layer_kinds=()) == replace(expected, kinds=(), layer_kinds=())
    for tensor in tensor_shapes(model.config):
        values = checkpoint.tensor(tensor)
        np.testing.assert_array_equal(values, model.read(tensor), err_msg=tensor)
        assert values.dtype == np.float32
        assert values.flags.writeable
        assert values.flags.c_contiguous


@pytest.mark.parametrize("name", _READ_BY_TRANSFORMERS)
def test_the_files_are_those_that_transformers_reads(name: str, tmp_path: Path) -> None:
    """The writer of these tests is not ours to define: transformers has to find its model in it."""
    load: Callable[..., dict[str, Any]] = modeling_gguf_pytorch_utils.load_gguf_checkpoint
    model = model_of(name)
    path = write_gguf(model, tmp_path / "tiny.gguf")
    found = load(path, return_tensors=True, model_to_load=model.model)
    expected = model.model.state_dict()
    tied = {"lm_head.weight"} if model.config.tied_embeddings else set[str]()
    assert found["tensors"].keys() == expected.keys() - tied
    for tensor, values in found["tensors"].items():
        np.testing.assert_allclose(values, expected[tensor], atol=1e-6, err_msg=tensor)
    stated = model.model.config.to_dict()
    read = {key: value for key, value in found["config"].items() if key in stated}
    assert read["num_hidden_layers" if "num_hidden_layers" in stated else "n_layer"]
    for key, value in read.items():
        if not key.startswith("_"):
            assert value == pytest.approx(stated[key]), key


@pytest.mark.parametrize("name", _QUANTIZING)
def test_matrices_are_dequantized(name: str, tmp_path: Path) -> None:
    model, encoding = _of_whole_blocks("phi3"), Encoding[name]
    checkpoint = open_file(write_gguf(model, tmp_path / "tiny.gguf", encoding=encoding))
    for tensor in tensor_shapes(model.config):
        expected = model.read(tensor)
        if expected.ndim == 2:
            expected = gguf.dequantize(gguf.quantize(expected, encoding), encoding)
        np.testing.assert_array_equal(checkpoint.tensor(tensor), expected, err_msg=tensor)


@pytest.mark.parametrize("name", _DEQUANTIZING)
def test_blocks_of_any_encoding_are_read(name: str, tmp_path: Path) -> None:
    model, encoding = _of_whole_blocks("llama"), Encoding[name]
    rows = {"token_embd.weight": 512, "blk.1.attn_k.weight": 128, "blk.0.ffn_up.weight": 256}
    blocks = {tensor: _blocks(encoding, count) for tensor, count in rows.items()}
    path = tmp_path / "tiny.gguf"
    write_gguf(model, path, encoding=encoding, tensors={**_all_blocks(model, encoding), **blocks})
    checkpoint = open_file(path)
    up = checkpoint.tensor("model.layers.0.mlp.up_proj.weight")
    np.testing.assert_array_equal(up, gguf.dequantize(blocks["blk.0.ffn_up.weight"], encoding))
    assert np.isfinite(up).all()
    assert up.std() > 0
    key = gguf.dequantize(blocks["blk.1.attn_k.weight"], encoding)
    halves = key.reshape(2, 32, 2, -1).swapaxes(1, 2).reshape(key.shape)
    found = checkpoint.tensor("model.layers.1.self_attn.k_proj.weight")
    np.testing.assert_array_equal(found, halves)


def test_every_encoding_that_the_library_reads_is_tested() -> None:
    tested = {"F32", *_QUANTIZING, *_DEQUANTIZING}
    assert {encoding.name for encoding in Encoding if _is_read(encoding)} == tested


@cache
def _of_whole_blocks(name: str) -> Tiny:
    """With rows of whole blocks of 256."""
    return tiny(name, hidden_size=256, intermediate_size=256)


def _blocks(encoding: Encoding, rows: int) -> NDArray[np.uint8]:
    """Random rows of 256 values; bytes below 60 keep scales, whatever their place, finite."""
    block, size = gguf.GGML_QUANT_SIZES[encoding]
    random = np.random.default_rng(rows)
    return random.integers(0, 60, (rows, 256 // block * size), dtype=np.uint8)


def _all_blocks(model: Tiny, encoding: Encoding) -> dict[str, NDArray[np.uint8]]:
    shapes = {name: shape for name, shape in tensor_shapes(model.config).items() if len(shape) == 2}
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, model.config.layers)
    return {
        str(names.get_name(name, try_suffixes=(".weight",))): _blocks(encoding, shape[0])
        for name, shape in shapes.items()
    }


def _is_read(encoding: Encoding) -> bool:
    """Whether gguf has a table for it; what it lacks is refused by name (`test_gguf.py`)."""
    block, _ = gguf.GGML_QUANT_SIZES[encoding]
    data = np.zeros((1, 256), np.float32) if block == 1 else _blocks(encoding, 1)
    try:
        gguf.dequantize(data.view(np.uint8) if block == 1 else data, encoding)
    except NotImplementedError:
        return False
    return True
