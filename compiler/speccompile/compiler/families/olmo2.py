"""OLMo 2: norms after the sublayers only, and queries and keys normalized over all heads."""

from __future__ import annotations

from dataclasses import replace

from speccompile.compiler.decoder import DecoderConfig
from speccompile.compiler.families.family import Converted, Family
from speccompile.compiler.families.reading import flag, read_decoder
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["OLMO2"]


def _olmo2(settings: Metadata) -> DecoderConfig:
    biased = flag(settings, "attention_bias")
    return replace(
        read_decoder(settings),
        norm_before=False,
        norm_after=True,
        query_key_norm="all_heads",
        qkv_bias=biased,
        output_bias=biased,
    )


OLMO2 = Family(
    "olmo2", "Olmo2ForCausalLM", _olmo2, Converted("olmo2"), defaults={"rms_norm_eps": 1e-5}
)
