"""A tiny model, written by the libraries that own the formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from speccompile.compiler.decoder import DecoderConfig, tensor_shapes
from tests.families import Tiny, tiny
from tests.gguf_files import write_gguf as write_gguf_file


@pytest.fixture(scope="session")
def model() -> Tiny:
    """A Llama of float32 values that float16 and bfloat16 hold exactly."""
    model = tiny("llama")
    random = np.random.default_rng(7)
    with torch.no_grad():
        for parameter in model.model.parameters():
            values = random.integers(-64, 64, tuple(parameter.shape)) / 32
            parameter.copy_(torch.tensor(values))
    return model


@pytest.fixture(scope="session")
def config(model: Tiny) -> DecoderConfig:
    return model.config


@pytest.fixture(scope="session")
def weights(model: Tiny) -> dict[str, NDArray[np.float32]]:
    """Canonical tensors of the model."""
    return {name: model.read(name) for name in tensor_shapes(model.config)}


@pytest.fixture
def write_gguf(model: Tiny, tmp_path: Path) -> Callable[..., Path]:
    """Write the model as llama.cpp's converter would, with `keys` and `tensors` to change it."""
    return partial(write_gguf_file, model, tmp_path / "tiny.gguf")


@pytest.fixture
def write_folder(model: Tiny, tmp_path: Path) -> Callable[..., Path]:
    """Save the model through transformers, with a tokenizer."""

    def write(dtype: torch.dtype = torch.float32, max_shard_size: str = "1GB") -> Path:
        folder = tmp_path / "tiny"
        copy = tiny("llama").model
        copy.load_state_dict(model.model.state_dict())
        copy.to(dtype).save_pretrained(folder, max_shard_size=max_shard_size)
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
