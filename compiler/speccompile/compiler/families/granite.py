"""Granite 3: Llama with multipliers on embeddings, sublayers, attention scores and logits."""

from __future__ import annotations

from dataclasses import replace

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.families.family import Converted, Family
from speccompile.compiler.families.reading import flag, read_decoder
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["GRANITE"]


def _granite(settings: Metadata) -> DecoderConfig:
    biased = flag(settings, "attention_bias")
    return replace(
        read_decoder(settings),
        qkv_bias=biased,
        output_bias=biased,
        mlp_bias=flag(settings, "mlp_bias"),
        embedding_scale=settings.optional("embedding_multiplier", float) or 1.0,
        residual_scale=settings.optional("residual_multiplier", float) or 1.0,
        attention_scale=settings.optional("attention_multiplier", float) or 1.0,
        logit_scale=1.0 / (settings.optional("logits_scaling", float) or 1.0),
    )


_KEYS = {
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "attention.scale": "attention_multiplier",
    "logit_scale": "logits_scaling",
}
GRANITE = Family(
    "granite", "GraniteForCausalLM", _granite, Converted("granite", _KEYS, interleaved=True)
)
