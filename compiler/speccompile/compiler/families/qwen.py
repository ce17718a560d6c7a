"""Qwen2 and Qwen2.5 (biased projections of q, k and v) and Qwen3 (normalized queries and keys)."""

from __future__ import annotations

from dataclasses import replace

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.families.family import Converted, Family
from speccompile.compiler.families.reading import flag, read_decoder, sliding_kinds
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["QWEN2", "QWEN3"]


def _qwen2(settings: Metadata) -> DecoderConfig:
    return replace(_qwen(settings), qkv_bias=True)


def _qwen3(settings: Metadata) -> DecoderConfig:
    biased = flag(settings, "attention_bias")
    return replace(_qwen(settings), query_key_norm="head", qkv_bias=biased, output_bias=biased)


def _qwen(settings: Metadata) -> DecoderConfig:
    if not flag(settings, "use_sliding_window"):
        return read_decoder(settings)
    first = settings.required("max_window_layers", int)
    sliding = [index >= first for index in range(settings.size("num_hidden_layers"))]
    return read_decoder(settings, sliding_kinds(settings, sliding=sliding))


_DEFAULTS = {
    "num_key_value_heads": 32,
    "max_position_embeddings": 32_768,
    "sliding_window": 4096,
    "max_window_layers": 28,
}
QWEN2 = Family("qwen2", "Qwen2ForCausalLM", _qwen2, Converted("qwen2"), _DEFAULTS)
QWEN3 = Family(
    "qwen3", "Qwen3ForCausalLM", _qwen3, Converted("qwen3"), {**_DEFAULTS, "head_dim": 128}
)
