"""What a decoder is, whatever file it came from: its dimensions and the names of its tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["DecoderConfig", "tensor_shapes"]


@dataclass(frozen=True)
class DecoderConfig:
    """The dimensions of a Llama-family decoder: RMSNorm before, RoPE, gated SiLU, grouped heads."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    context_length: int
    rope_theta: float
    rms_norm_eps: float
    tied_embeddings: bool


def tensor_shapes(config: DecoderConfig) -> dict[str, tuple[int, ...]]:
    """Canonical tensor names (those of Hugging Face's Llama) with their shapes, in model order.

    Linear weights are ``[out, in]``, as checkpoints store them.
    """
    return dict(_tensors(config))


def _tensors(config: DecoderConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    hidden, inner = config.hidden_size, config.intermediate_size
    query, kv = config.heads * config.head_dim, config.kv_heads * config.head_dim
    yield "model.embed_tokens.weight", (config.vocab_size, hidden)
    for index in range(config.layers):
        layer = f"model.layers.{index}"
        yield f"{layer}.input_layernorm.weight", (hidden,)
        yield f"{layer}.self_attn.q_proj.weight", (query, hidden)
        yield f"{layer}.self_attn.k_proj.weight", (kv, hidden)
        yield f"{layer}.self_attn.v_proj.weight", (kv, hidden)
        yield f"{layer}.self_attn.o_proj.weight", (hidden, query)
        yield f"{layer}.post_attention_layernorm.weight", (hidden,)
        yield f"{layer}.mlp.gate_proj.weight", (inner, hidden)
        yield f"{layer}.mlp.up_proj.weight", (inner, hidden)
        yield f"{layer}.mlp.down_proj.weight", (hidden, inner)
    yield "model.norm.weight", (hidden,)
    if not config.tied_embeddings:
        yield "lm_head.weight", (config.vocab_size, hidden)
