"""transformers' model of real weights, the oracle of what is built of them."""

from __future__ import annotations

from typing import Any

from speccompile.compiler.sources.checkpoint import Checkpoint

__all__ = ["transformers_model"]


def transformers_model(checkpoint: Checkpoint) -> Any:  # noqa: ANN401 - transformers has no types
    """A Llama or a Qwen2, by its biases, in fp32, with unscaled RoPE and full attention."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    config = checkpoint.config
    (kind,) = config.kinds
    if kind.rope is None:
        raise ValueError("neither a Llama nor a Qwen2")
    # The last frequency is theta ^ -((dim - 2) / dim).
    theta = round(kind.rope.frequencies[-1] ** (-config.head_dim / (config.head_dim - 2)), -1)
    build: Any = AutoModelForCausalLM.from_config
    model = build(
        AutoConfig.for_model(
            "qwen2" if config.qkv_bias else "llama",
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.context_length,
            rms_norm_eps=config.norm_epsilon,
            rope_parameters={"rope_type": "default", "rope_theta": theta},
            tie_word_embeddings=config.tied_embeddings,
            bos_token_id=None,
            eos_token_id=None,
            pad_token_id=None,
        )
    ).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.copy_(torch.from_numpy(checkpoint.tensor(name)))
    return model
