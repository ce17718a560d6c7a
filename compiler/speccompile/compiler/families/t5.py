"""T5, T5 v1.1 and FLAN-T5: an encoder and a decoder, both with a relative position bias.

Scores are not scaled: the weights are. The first models multiply what the head reads by
hidden_size ** -0.5, and have a plain feed-forward with a ReLU; later ones have a head of their own
and a gated GELU.
"""

from __future__ import annotations

from collections.abc import Mapping

from speccompile.compiler.decoder import (
    Activation,
    DecoderConfig,
    Encoder,
    LayerKind,
    PositionBias,
)
from speccompile.compiler.families.family import Converted, Family, Stored
from speccompile.compiler.families.reading import flag
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["T5"]

_FEED_FORWARDS: Mapping[str, tuple[Activation, bool]] = {
    "relu": ("relu", False),
    "gated-gelu": ("gelu_tanh", True),
    "gated-silu": ("silu", True),
}


def _t5(settings: Metadata) -> DecoderConfig:
    feed_forward = settings.optional("feed_forward_proj", str) or "relu"
    if feed_forward not in _FEED_FORWARDS:
        raise settings.refusal("feed_forward_proj", feed_forward, ", ".join(_FEED_FORWARDS))
    activation, gated = _FEED_FORWARDS[feed_forward]
    hidden_size, heads = settings.size("d_model", 512), settings.size("num_heads", 8)
    layers = settings.size("num_layers", 6)
    tied = flag(settings, "tie_word_embeddings", True)
    scaled = flag(settings, "scale_decoder_outputs", tied)
    return DecoderConfig(
        vocab_size=settings.size("vocab_size", 32_128),
        hidden_size=hidden_size,
        intermediate_size=settings.size("d_ff", 2048),
        heads=heads,
        kv_heads=heads,
        head_dim=settings.size("d_kv", 64),
        # Distances have no end, but none of the published models was trained beyond.
        context_length=settings.size("n_positions", 512),
        kinds=(LayerKind(rope=None),),
        layer_kinds=(0,) * settings.size("num_decoder_layers", layers),
        tied_embeddings=tied,
        norm_epsilon=settings.optional("layer_norm_epsilon", float) or 1e-6,
        attention_scale=1.0,
        activation=activation,
        gated=gated,
        logit_scale=hidden_size**-0.5 if scaled else 1.0,
        position_bias=PositionBias(
            settings.size("relative_attention_num_buckets", 32),
            settings.size("relative_attention_max_distance", 128),
        ),
        encoder=Encoder(layers, _start_token(settings)),
    )


def _start_token(settings: Metadata) -> int:
    """Padding, where nothing else is said: so the models were trained."""
    start = settings.optional("decoder_start_token_id", int)
    return (settings.optional("pad_token_id", int) or 0) if start is None else start


def _stored(config: DecoderConfig, name: str) -> Stored:
    if name in _OUTSIDE_LAYERS:
        return Stored(_OUTSIDE_LAYERS[name])
    stack, _, layer, part, *rest = name.split(".")
    block = f"{_STACKS[stack]}.block.{layer}.layer"
    feed_forward = 2 if stack == "model" else 1
    if part == "mlp":
        names = _GATED if config.gated else _PLAIN
        return Stored(f"{block}.{feed_forward}.DenseReluDense.{names[rest[0]]}.weight")
    if part in _ATTENTIONS:
        return Stored(f"{block}.{_ATTENTIONS[part]}.{_IN_ATTENTION[rest[0]]}.weight")
    norm = {"input_layernorm": 0, "cross_attn_layernorm": 1, "post_attention_layernorm": -1}[part]
    return Stored(f"{block}.{feed_forward if norm < 0 else norm}.layer_norm.weight")


_OUTSIDE_LAYERS = {
    "model.embed_tokens.weight": "shared.weight",
    "encoder.norm.weight": "encoder.final_layer_norm.weight",
    "model.norm.weight": "decoder.final_layer_norm.weight",
    "lm_head.weight": "lm_head.weight",
}
_STACKS = {"encoder": "encoder", "model": "decoder"}
_ATTENTIONS = {"self_attn": "0.SelfAttention", "cross_attn": "1.EncDecAttention"}
_IN_ATTENTION = {
    "q_proj": "q",
    "k_proj": "k",
    "v_proj": "v",
    "o_proj": "o",
    "position_bias": "relative_attention_bias",
}
_GATED = {"gate_proj": "wi_0", "up_proj": "wi_1", "down_proj": "wo"}
_PLAIN = {"up_proj": "wi", "down_proj": "wo"}

T5 = Family(
    "t5",
    "T5ForConditionalGeneration",
    _t5,
    Converted("t5"),
    stored=_stored,
    head_by_file=True,
)
