"""transformers' own Llama, the oracle of ours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from speccompile.compiler.decoder import DecoderConfig

if TYPE_CHECKING:  # imported where used: it takes seconds, which most tests need not wait
    from transformers import LlamaForCausalLM


def transformers_llama(
    config: DecoderConfig, *, initializer_range: float = 0.02
) -> LlamaForCausalLM:
    """A model of random weights in the dimensions of `config`."""
    from transformers import LlamaConfig, LlamaForCausalLM

    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            intermediate_size=config.intermediate_size,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.kv_heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.context_length,
            rms_norm_eps=config.rms_norm_eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            tie_word_embeddings=config.tied_embeddings,
            initializer_range=initializer_range,
        )
    )
