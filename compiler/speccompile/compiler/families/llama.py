"""Llama 1 to 3, Mistral and SmolLM 1 to 3: RMSNorm before, RoPE, gated SiLU, grouped heads."""

from __future__ import annotations

from dataclasses import replace

from speccompile.compiler.decoder import DecoderConfig, LayerKind
from speccompile.compiler.families.family import Converted, Family
from speccompile.compiler.families.reading import flag, head_size, read_decoder, sliding_kinds
from speccompile.compiler.families.rotation import read_rope
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["LLAMA", "MISTRAL", "SMOLLM3"]


def _llama(settings: Metadata) -> DecoderConfig:
    return _with_biases(settings, read_decoder(settings))


def _mistral(settings: Metadata) -> DecoderConfig:
    layers = settings.size("num_hidden_layers")
    return read_decoder(settings, sliding_kinds(settings, sliding=[True] * layers))


def _smollm3(settings: Metadata) -> DecoderConfig:
    """Some layers have no rotary embedding (NoPE, arXiv 2305.19466)."""
    if flag(settings, "use_sliding_window"):
        raise settings.refusal("use_sliding_window", True, "false")
    rope = read_rope(settings, head_size(settings))
    period = settings.size("no_rope_layer_interval")
    rotated = [(index + 1) % period for index in range(settings.size("num_hidden_layers"))]
    if settings.optional("no_rope_layers", list) is not None:
        rotated = settings.sequence("no_rope_layers", int)  # 1 where there is RoPE
    if len(rotated) != settings.size("num_hidden_layers"):
        raise settings.refusal("no_rope_layers", f"of length {len(rotated)}", "one for each layer")
    kinds = [LayerKind(rope if has_rope else None) for has_rope in rotated]
    return _with_biases(settings, read_decoder(settings, kinds))


def _with_biases(settings: Metadata, config: DecoderConfig) -> DecoderConfig:
    biased = flag(settings, "attention_bias")
    mlp_bias = flag(settings, "mlp_bias")
    return replace(config, qkv_bias=biased, output_bias=biased, mlp_bias=mlp_bias)


LLAMA = Family("llama", "LlamaForCausalLM", _llama, Converted("llama", interleaved=True))
MISTRAL = Family(
    "mistral",
    "MistralForCausalLM",
    _mistral,
    Converted("llama", interleaved=True),
    defaults={
        "num_key_value_heads": 8,
        "max_position_embeddings": 131_072,
        "sliding_window": 4096,
    },
)
SMOLLM3 = Family(
    "smollm3",
    "SmolLM3ForCausalLM",
    _smollm3,
    Converted("smollm3", interleaved=True),
    defaults={
        "num_key_value_heads": 4,
        "max_position_embeddings": 32_768,
        "rope_theta": 2_000_000.0,
        "no_rope_layer_interval": 4,
        "tie_word_embeddings": True,
    },
)
