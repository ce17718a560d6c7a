"""Tiny models of every supported family, as transformers runs them: the oracles of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.families.catalogue import family_of
from speccompile.compiler.families.family import Family
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["CONTEXT", "TINY", "Tiny", "tiny"]

CONTEXT = 96
_WINDOW = 24

_COMMON = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10_000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 24,
}
_GEMMA = {"head_dim": 32, "query_pre_attn_scalar": 24, "sliding_window": _WINDOW}

# Of each family, what its settings may change in the arithmetic: model_type and what differs.
TINY: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "llama": ("llama", {}),
    "llama-tied": ("llama", {"tie_word_embeddings": True}),
    "llama-biased": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama3": ("llama", {"rope_parameters": _LLAMA3}),
    "llama-linear": (
        "llama",
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}},
    ),
    "llama-dynamic": (
        "llama",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
    ),
    "mistral": ("mistral", {"sliding_window": None, "head_dim": 32}),
    "mistral-sliding": ("mistral", {"sliding_window": _WINDOW}),
    "smollm3": ("smollm3", {"num_hidden_layers": 4}),
    "qwen2": ("qwen2", {"tie_word_embeddings": True}),
    "qwen2-yarn": ("qwen2", {"rope_parameters": _YARN}),
    "qwen2-sliding": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": _WINDOW, "max_window_layers": 1},
    ),
    "qwen3": ("qwen3", {"head_dim": 32}),
    "gemma2": ("gemma2", _GEMMA),
    "gemma3": ("gemma3_text", {**_GEMMA, "num_hidden_layers": 6}),
    "phi3": ("phi3", {"sliding_window": _WINDOW}),
    "phi4": (
        "phi3",
        {
            "original_max_position_embeddings": CONTEXT,
            "max_position_embeddings": 4 * CONTEXT,
            "num_attention_heads": 2,
            "rope_parameters": {
                "rope_type": "longrope",
                "rope_theta": 10_000.0,
                "partial_rotary_factor": 0.75,
                "short_factor": [1.0 + index / 8 for index in range(12)],
                "long_factor": [2.0 + index for index in range(12)],
            },
        },
    ),
    "gpt2": ("gpt2", {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": CONTEXT}),
    "granite": (
        "granite",
        {
            "embedding_multiplier": 3.0,
            "residual_multiplier": 0.5,
            "attention_multiplier": 0.2,
            "logits_scaling": 4.0,
        },
    ),
    "olmo2": ("olmo2", {}),
}


@dataclass(frozen=True)
class Tiny:
    """transformers' model, the oracle of the contract, and what our words for it are."""

    model: Any
    family: Family
    config: DecoderConfig

    def read(self, name: str) -> NDArray[np.float32]:
        where = self.family.stored(self.config, name)
        return where.canonical(self.model.state_dict()[where.name].numpy())

    def logits(self, tokens: Sequence[int], **inputs: object) -> NDArray[np.float32]:
        """[N, V] of a whole sequence, computed without a cache."""
        import torch

        with torch.inference_mode():
            rows: NDArray[np.float32] = (
                self.model(torch.tensor([tokens]), use_cache=False, **inputs).logits[0].numpy()
            )
        return rows


def tiny(name: str, **settings: object) -> Tiny:
    """The model called `name` in TINY with random weights, the same ones each time.

    They are drawn wide, so that attention is far from uniform and an error in it shows; and norms
    and biases too, which else are all ones and zeros, so that two could be exchanged unseen.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    model_type, special = TINY[name]
    common = {"vocab_size": 512} if model_type == "gpt2" else _COMMON
    hf_config = AutoConfig.for_model(
        model_type, **{**common, "initializer_range": 0.2, **special, **settings}
    )
    torch.manual_seed(0)
    from_config: Callable[..., Any] = AutoModelForCausalLM.from_config
    model = from_config(hf_config, attn_implementation="eager").eval()
    for parameter_name, parameter in model.named_parameters():
        if "norm" in parameter_name or "ln_" in parameter_name:
            torch.nn.init.uniform_(parameter, *_norm_range(parameter_name, model_type))
        elif parameter_name.endswith("bias"):
            torch.nn.init.uniform_(parameter, -0.5, 0.5)
    values = Metadata("config.json", hf_config.to_dict())
    family = family_of(values)
    return Tiny(model, family, family.read(values))


def _norm_range(name: str, model_type: str) -> tuple[float, float]:
    is_offset = name.endswith("bias") or model_type.startswith("gemma")
    return (-0.5, 0.5) if is_offset else (0.5, 1.5)
