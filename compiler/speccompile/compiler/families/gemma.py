"""Gemma 2 and 3: norms on both sides, scaled embeddings, layers with a sliding window.

Gemma 2 caps attention scores and logits softly; Gemma 3 normalizes queries and keys instead, and
its sliding layers have a rotary base of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from speccompile.compiler.decoder import DecoderConfig, LayerKind
from speccompile.compiler.families.family import Converted, Family, Settings, Stored
from speccompile.compiler.families.reading import (
    activation,
    flag,
    head_size,
    read_decoder,
    sliding_kinds,
    windows,
)
from speccompile.compiler.families.rotation import read_rope
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["GEMMA2", "GEMMA3"]


def _gemma2(settings: Metadata) -> DecoderConfig:
    sliding = [index % 2 == 0 for index in range(settings.size("num_hidden_layers"))]
    return _gemma(settings, sliding_kinds(settings, sliding=sliding))


def _gemma3(settings: Metadata) -> DecoderConfig:
    period = settings.optional("sliding_window_pattern", int)
    period = period or settings.size("_sliding_window_pattern")
    layers = settings.size("num_hidden_layers")
    seen = windows(settings, sliding=[(index + 1) % period > 0 for index in range(layers)])
    far, near = (read_rope(settings, head_size(settings), rope) for rope in _ropes(settings))
    kinds = [LayerKind(near if window else far, window) for window in seen]
    return replace(_gemma(settings, kinds), query_key_norm="head")


def _gemma(settings: Metadata, kinds: Sequence[LayerKind]) -> DecoderConfig:
    if flag(settings, "use_bidirectional_attention"):
        raise settings.refusal("use_bidirectional_attention", True, "false")
    biased = flag(settings, "attention_bias")
    return replace(
        read_decoder(settings, kinds),
        norm_after=True,
        qkv_bias=biased,
        output_bias=biased,
        activation=activation(settings, "hidden_activation", "gelu_pytorch_tanh"),
        attention_scale=settings.required("query_pre_attn_scalar", float) ** -0.5,
        embedding_scale=settings.size("hidden_size") ** 0.5,
        attention_softcap=settings.optional("attn_logit_softcapping", float),
        logit_softcap=settings.optional("final_logit_softcapping", float),
    )


def _ropes(settings: Metadata) -> tuple[Metadata, Metadata]:
    """The rotary settings of full and of sliding layers; older files have keys of their own."""
    where = f"{settings.where}: rope_parameters"
    local = settings.required("rope_local_base_freq", float)
    by_kind = Metadata(where, settings.optional("rope_parameters", dict) or {})
    if "full_attention" in by_kind.values:
        full = by_kind.required("full_attention", dict)
        sliding = by_kind.required("sliding_attention", dict)
        return Metadata(where, full), Metadata(where, {"rope_theta": local, **sliding})
    full = settings.optional("rope_scaling", dict) or {}
    return Metadata(where, full), Metadata(where, {"rope_theta": local})


def _stored(config: DecoderConfig, name: str) -> Stored:
    """Norm weights are stored as their difference from one."""
    return Stored(name, offset=1.0 if "norm" in name else 0.0)


def _attention_scalar(settings: Settings) -> Settings:
    """A GGUF file has none: it is the head size, but in the 27B models, known by their layers."""
    keys = ("num_hidden_layers", "hidden_size", "num_attention_heads", "head_dim")
    layers, hidden, heads, head_dim = (Metadata("", settings).size(key) for key in keys)
    return {"query_pre_attn_scalar": hidden // heads if layers in (46, 62) else head_dim}


_DEFAULTS = {
    "num_key_value_heads": 4,
    "head_dim": 256,
    "sliding_window": 4096,
    "query_pre_attn_scalar": 256,
    "tie_word_embeddings": True,
}
_KEYS = {
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
GEMMA2 = Family(
    "gemma2",
    "Gemma2ForCausalLM",
    _gemma2,
    Converted("gemma2", _KEYS, inferred=_attention_scalar),
    defaults={
        **_DEFAULTS,
        "max_position_embeddings": 8192,
        "attn_logit_softcapping": 50.0,
        "final_logit_softcapping": 30.0,
    },
    stored=_stored,
)
GEMMA3 = Family(
    "gemma3_text",
    "Gemma3ForCausalLM",
    _gemma3,
    Converted(
        "gemma3",
        {
            **_KEYS,
            "attention.sliding_window_pattern": "sliding_window_pattern",
            "rope.freq_base_swa": "rope_local_base_freq",
        },
        inferred=_attention_scalar,
    ),
    defaults={
        **_DEFAULTS,
        "max_position_embeddings": 131_072,
        "rope_theta": 1_000_000.0,
        "rope_local_base_freq": 10_000.0,
        "_sliding_window_pattern": 6,
    },
    stored=_stored,
)
