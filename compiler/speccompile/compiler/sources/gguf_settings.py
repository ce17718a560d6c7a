"""The configuration of a GGUF file in the words of config.json, so that families read one form.

What the keys mean is llama.cpp's: its `conversion/` writes them, its `src/models/` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from gguf import dequantize

from speccompile.compiler.families.family import Converted
from speccompile.compiler.sources.checkpoint import SourceError
from speccompile.compiler.sources.gguf_file import StoredTensor
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["ROPE_TENSORS", "gguf_settings"]

ROPE_TENSORS = ("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight")
"""Settings that are stored as tensors: what each rotation of a head is slowed by."""

_REQUIRED = {
    "block_count": "num_hidden_layers",
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
_OPTIONAL = {
    "attention.head_count_kv": "num_key_value_heads",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "rope.freq_base": "rope_theta",
}
_ROPE = {
    "rope.scaling.type": "rope_type",
    "rope.scaling.factor": "factor",
    "rope.scale_linear": "factor",
    "rope.scaling.original_context_length": "original_max_position_embeddings",
    "rope.scaling.attn_factor": "attention_factor",
    "rope.scaling.yarn_attn_factor": "attention_factor",
    "rope.scaling.yarn_beta_fast": "beta_fast",
    "rope.scaling.yarn_beta_slow": "beta_slow",
}
# Checked below, or of no effect on the arithmetic.
_OTHERS = (
    *("vocab_size", "tensor_data_layout", "expert_count", "expert_used_count", "attention.causal"),
    *("attention.key_length", "attention.value_length", "rope.dimension_count"),
    "rope.scaling.finetuned",
)


def gguf_settings(
    metadata: Metadata, form: Converted, tensors: Mapping[str, StoredTensor]
) -> Metadata:
    """The settings of config.json that `metadata` and `tensors` of a file of this form stand for.

    Raises SourceError for a key that is missing, unknown, or of a value that is not implemented.
    """
    own = _own_keys(metadata, form)
    keys = {**_REQUIRED, **_OPTIONAL, **form.keys}
    _refuse(own, {*keys, *_ROPE, *_OTHERS})
    for key in _REQUIRED:
        own.size(key)
    embedding = tensors.get("token_embd.weight")
    if embedding is None:
        raise SourceError(f"{metadata.where}: has no tensor token_embd.weight")
    settings = {
        # What llama.cpp means by an absent key is not what transformers means.
        "num_key_value_heads": None,
        "rope_theta": 10_000.0,
        **_renamed(own, keys),
        **_heads(own, form),
        "vocab_size": embedding.shape[0],
        "tie_word_embeddings": "output.weight" not in tensors,
        "attention_bias": "blk.0.attn_q.bias" in tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in tensors,
        "rope_parameters": _rope(own, tensors),
    }
    return Metadata(metadata.where, {**settings, **form.inferred(settings)})


def _own_keys(metadata: Metadata, form: Converted) -> Metadata:
    """The keys of the architecture, without its name."""
    prefix = f"{form.architecture}."
    keys = {
        key.removeprefix(prefix): value
        for key, value in metadata.values.items()
        if key.startswith(prefix)
    }
    return Metadata(f"{metadata.where}: {form.architecture}", keys)


def _refuse(own: Metadata, known: set[str]) -> None:
    if experts := own.optional("expert_count", int):
        raise SourceError(
            f"{own.where}: a mixture of {experts} experts is not supported; use a dense model"
        )
    for key in ("attention.causal", "rope.scaling.finetuned"):
        if own.optional(key, bool) is False:
            raise own.refusal(key, False, "true")
    if unknown := sorted(own.values.keys() - known):
        raise SourceError(
            f"{own.where}: {unknown[0]} is not supported in this architecture; "
            "use a file of a model whose keys are known"
        )


def _renamed(own: Metadata, keys: Mapping[str, str]) -> dict[str, object]:
    return {name: _decimal(own.values[key]) for key, name in keys.items() if key in own.values}


def _decimal(value: object) -> object:
    """Of a float32, the shortest decimal that it is: what the model's author wrote."""
    return float(str(np.float32(value))) if isinstance(value, float) else value


def _heads(own: Metadata, form: Converted) -> dict[str, object]:
    default = own.size("embedding_length") // own.size("attention.head_count")
    head_dim = own.size("attention.key_length", default)
    value_dim = own.size("attention.value_length", head_dim)
    rotated = own.size("rope.dimension_count", head_dim)
    # Where pairs are interleaved, llama.cpp rotates heads as a whole.
    if value_dim != head_dim or rotated > head_dim or (form.interleaved and rotated != head_dim):
        raise SourceError(
            f"{own.where}: heads of {head_dim} with {value_dim} values and {rotated} rotated "
            "are not supported; the three must be equal"
        )
    return {"head_dim": head_dim, "partial_rotary_factor": rotated / head_dim}


def _rope(own: Metadata, tensors: Mapping[str, StoredTensor]) -> dict[str, object]:
    rope = _renamed(own, _ROPE)
    kind = own.optional("rope.scaling.type", str) or ("linear" if "factor" in rope else "none")
    divisors, short, _ = (tensors.get(name) for name in ROPE_TENSORS)
    channels = short or divisors
    if channels is None:
        return {**rope, "rope_type": "default" if kind == "none" else kind}
    if kind not in ("none", "longrope"):
        raise own.refusal("rope.scaling.type", kind, f"none, as {channels.name} scales the RoPE")
    factors = dequantize(channels.data, channels.encoding).astype(np.float64).tolist()
    if short is None:  # Llama 3's scaling, as a divisor of every frequency
        rope = {"attention_factor": 1.0}
    return {**rope, "rope_type": "longrope", "short_factor": factors}
