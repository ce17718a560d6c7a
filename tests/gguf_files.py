"""GGUF files of the tiny models, as llama.cpp's converter (its `conversion/`) writes them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.families import Tiny

__all__ = ["write_gguf"]

Tensors = Mapping[str, NDArray[Any] | None]

_INTERLEAVED = ("llama", "smollm3", "granite")
_KEYS = {
    "context_length": ("max_position_embeddings", "n_positions"),
    "embedding_length": ("hidden_size", "n_embd"),
    "block_count": ("num_hidden_layers", "n_layer"),
    "feed_forward_length": ("intermediate_size", "n_inner"),
    "attention.head_count": ("num_attention_heads", "n_head"),
    "attention.head_count_kv": ("num_key_value_heads",),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "attention.layer_norm_epsilon": ("layer_norm_epsilon",),
    "attention.key_length": ("head_dim",),
    "attention.value_length": ("head_dim",),
    "vocab_size": ("vocab_size",),
}
_OF_ARCHITECTURE = {
    "gemma2": {
        "attention.sliding_window": "sliding_window",
        "attn_logit_softcapping": "attn_logit_softcapping",
        "final_logit_softcapping": "final_logit_softcapping",
    },
    "gemma3": {"attention.sliding_window": "sliding_window"},
    "phi3": {"attention.sliding_window": "sliding_window"},
    "granite": {
        "attention.scale": "attention_multiplier",
        "embedding_scale": "embedding_multiplier",
        "residual_scale": "residual_multiplier",
        "logit_scale": "logits_scaling",
    },
}


def write_gguf(
    model: Tiny,
    path: Path,
    *,
    encoding: gguf.GGMLQuantizationType = gguf.GGMLQuantizationType.F32,
    keys: Mapping[str, object] | None = None,
    tensors: Tensors | None = None,
) -> Path:
    """Write `model` with its matrices in `encoding`.

    `keys` and `tensors` replace those of the same name, or, being None, remove them; bytes are
    taken for blocks of `encoding`.
    """
    architecture = model.family.gguf.architecture
    hf = model.model.config.to_dict()
    written = {"general.name": "tiny", "general.license": "apache-2.0"}
    writer = gguf.GGUFWriter(path, architecture)
    for key, value in {**written, **dict(_keys(architecture, hf)), **(keys or {})}.items():
        _write_key(writer, key, value)
    stored = {**dict(_tensors(architecture, model)), **dict(_rope_tensors(architecture, hf))}
    for name, values in {**stored, **(tensors or {})}.items():
        if values is None:
            continue
        if values.dtype == np.uint8:
            writer.add_tensor(name, values, raw_dtype=encoding)
        elif values.ndim == 2 and values.dtype == np.float32:
            writer.add_tensor(name, gguf.quantize(values, encoding), raw_dtype=encoding)
        else:
            writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _keys(architecture: str, hf: dict[str, Any]) -> Iterator[tuple[str, object]]:
    if architecture == "gpt2":
        hf = {**hf, "n_inner": 4 * hf["n_embd"]}
    for key, names in _KEYS.items():
        yield f"{architecture}.{key}", next((hf[name] for name in names if name in hf), None)
    for key, name in _OF_ARCHITECTURE.get(architecture, {}).items():
        # Phi-4 is told from Phi-3 by a window of zero.
        yield f"{architecture}.{key}", hf[name] or (0 if architecture == "phi3" else None)
    if "rope_parameters" in hf:
        for key, value in _rope_keys(architecture, hf):
            yield f"{architecture}.rope.{key}", value


def _rope_keys(architecture: str, hf: dict[str, Any]) -> Iterator[tuple[str, object]]:
    rope = hf["rope_parameters"]
    if "full_attention" in rope:
        yield "freq_base_swa", rope["sliding_attention"]["rope_theta"]
        rope = rope["full_attention"]
    yield "freq_base", rope["rope_theta"]
    yield "dimension_count", int(_head_size(hf) * rope.get("partial_rotary_factor", 1.0))
    match rope["rope_type"]:
        case "linear":
            yield "scaling.type", "linear"
            yield "scaling.factor", rope["factor"]
        case "yarn":
            yield "scaling.type", "yarn"
            yield "scaling.factor", rope["factor"]
            yield "scaling.original_context_length", rope["original_max_position_embeddings"]
        case "longrope":
            original = rope["original_max_position_embeddings"]
            stretch = math.log(hf["max_position_embeddings"] / original) / math.log(original)
            yield "scaling.original_context_length", original
            yield "scaling.attn_factor", math.sqrt(1 + stretch)
        case _:
            pass


def _tensors(architecture: str, model: Tiny) -> Iterator[tuple[str, NDArray[np.float32]]]:
    number = {name: number for number, name in gguf.MODEL_ARCH_NAMES.items()}[architecture]
    names = gguf.get_tensor_name_map(number, model.config.layers)
    for name, parameter in model.model.named_parameters():
        values: NDArray[np.float32] = parameter.detach().numpy()
        part = name.split(".")[-2]
        if architecture in _INTERLEAVED and part in ("q_proj", "k_proj"):
            heads = model.config.heads if part == "q_proj" else model.config.kv_heads
            halves = values.reshape(heads, 2, len(values) // heads // 2, -1)
            values = halves.swapaxes(1, 2).reshape(values.shape)
        if architecture == "gpt2" and part in ("c_attn", "c_proj", "c_fc"):
            values = values.T
        if architecture.startswith("gemma") and part.endswith("norm"):
            values = values + 1
        found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert found is not None, name
        yield found, np.ascontiguousarray(values)


def _rope_tensors(
    architecture: str, hf: dict[str, Any]
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    rope = hf.get("rope_parameters", {})
    match rope.get("rope_type"):
        case "llama3":
            yield "rope_freqs.weight", _llama3_divisors(rope, _head_size(hf))
        case "longrope":
            for kind in ("short", "long"):
                yield f"rope_factors_{kind}.weight", np.array(rope[f"{kind}_factor"], np.float32)
        case _:
            pass


def _llama3_divisors(rope: dict[str, Any], dim: int) -> NDArray[np.float32]:
    exponents = np.arange(0, dim, 2, dtype=np.float32) / np.float32(dim)
    turns = rope["original_max_position_embeddings"] / (2 * np.pi * rope["rope_theta"] ** exponents)
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    divisors = 1.0 / ((1.0 - share) / rope["factor"] + share)
    return np.asarray(divisors, np.float32)


def _head_size(hf: dict[str, Any]) -> int:
    size: int = hf.get("head_dim") or hf["hidden_size"] // hf["num_attention_heads"]
    return size


def _write_key(writer: gguf.GGUFWriter, key: str, value: object) -> None:
    if isinstance(value, bool):
        writer.add_bool(key, value)
    elif isinstance(value, str):
        writer.add_string(key, value)
    elif isinstance(value, int):
        writer.add_uint32(key, value)
    elif isinstance(value, float):
        writer.add_float32(key, value)
    elif isinstance(value, list):
        writer.add_array(key, value)
