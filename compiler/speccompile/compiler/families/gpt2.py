"""GPT-2 and DistilGPT-2: learned positions, LayerNorm, biases everywhere, a plain GELU."""

from __future__ import annotations

from speccompile.compiler.decoder import DecoderConfig, LayerKind
from speccompile.compiler.families.family import Converted, Family, Stored
from speccompile.compiler.families.reading import activation, flag
from speccompile.compiler.sources.metadata import Metadata

__all__ = ["GPT2"]


def _gpt2(settings: Metadata) -> DecoderConfig:
    for key, needed in (("scale_attn_weights", True), ("scale_attn_by_inverse_layer_idx", False)):
        if flag(settings, key, needed) != needed:
            raise settings.refusal(key, not needed, str(needed).lower())
    hidden_size, heads = settings.size("n_embd"), settings.size("n_head")
    positions = settings.size("n_positions", 1024)
    head_dim = hidden_size // heads
    return DecoderConfig(
        vocab_size=settings.size("vocab_size"),
        hidden_size=hidden_size,
        intermediate_size=settings.size("n_inner", 4 * hidden_size),
        heads=heads,
        kv_heads=heads,
        head_dim=head_dim,
        context_length=positions,
        kinds=(LayerKind(rope=None),),
        layer_kinds=(0,) * settings.size("n_layer"),
        tied_embeddings=flag(settings, "tie_word_embeddings", True),
        norm_epsilon=settings.optional("layer_norm_epsilon", float) or 1e-5,
        attention_scale=head_dim**-0.5,
        norm="layer",
        activation=activation(settings, "activation_function", "gelu_new"),
        gated=False,
        qkv_bias=True,
        output_bias=True,
        mlp_bias=True,
        learned_positions=positions,
    )


def _stored(config: DecoderConfig, name: str) -> Stored:
    """Linear weights are stored ``[in, out]``; q, k and v lie in one matrix."""
    if name in _OUTSIDE_LAYERS:
        return Stored(_OUTSIDE_LAYERS[name])
    _, _, layer, *_, part, kind = name.split(".")
    stored = f"transformer.h.{layer}.{_IN_LAYER[part]}.{kind}"
    if "norm" in part:
        return Stored(stored)
    width, third = config.hidden_size, ("q_proj", "k_proj", "v_proj")
    first = third.index(part) * width if part in third else None
    rows = None if first is None else (first, first + width)
    return Stored(stored, rows, transposed=kind == "weight")


_OUTSIDE_LAYERS = {
    "model.embed_tokens.weight": "transformer.wte.weight",
    "model.embed_positions.weight": "transformer.wpe.weight",
    "model.norm.weight": "transformer.ln_f.weight",
    "model.norm.bias": "transformer.ln_f.bias",
    "lm_head.weight": "lm_head.weight",
}
_IN_LAYER = {
    "input_layernorm": "ln_1",
    "post_attention_layernorm": "ln_2",
    "q_proj": "attn.c_attn",
    "k_proj": "attn.c_attn",
    "v_proj": "attn.c_attn",
    "o_proj": "attn.c_proj",
    "up_proj": "mlp.c_fc",
    "down_proj": "mlp.c_proj",
}

_KEYS = {
    "block_count": "n_layer",
    "context_length": "n_positions",
    "embedding_length": "n_embd",
    "feed_forward_length": "n_inner",
    "attention.head_count": "n_head",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
}
GPT2 = Family("gpt2", "GPT2LMHeadModel", _gpt2, Converted("gpt2", _KEYS), stored=_stored)
